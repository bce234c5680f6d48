// Facts about the page as data. The test judges them.
(() => {
  const all = (selector) => [...document.querySelectorAll(selector)];
  const colour = (text) => {
    const [red, green, blue, alpha = 1] = text.match(/[\d.]+/g).map(Number);
    return { parts: [red, green, blue], alpha };
  };
  const luminance = ({ parts }) => {
    const [r, g, b] = parts.map((part) => part / 255).map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (one, other) => {
    const [dark, bright] = [luminance(one), luminance(other)].sort((a, b) => a - b);
    return (bright + 0.05) / (dark + 0.05);
  };
  const ground = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const found = colour(getComputedStyle(at).backgroundColor);
      if (found.alpha === 1) return found;
    }
    return colour('rgb(255, 255, 255)');
  };
  const called = (element) => `${element.tagName}.${element.getAttribute('class') || ''}: ${element.textContent.slice(0, 40)}`;
  const shown = (element) => element.checkVisibility({ opacityProperty: true, visibilityProperty: true });
  const own = (element) => [...element.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.data.trim());
  const texts = all('body *').filter((element) => !element.closest('script, .unseen, .skip') && shown(element) && own(element));
  const ink = (element) => colour(element.closest('svg') ? getComputedStyle(element).fill : getComputedStyle(element).color);
  const lowContrast = texts.map((element) => [called(element), contrast(ink(element), ground(element))]).filter(([, ratio]) => ratio < 4.5)
    .map(([name, ratio]) => `${name} ${ratio.toFixed(2)}`);
  // What is drawn needs less: three to one.
  const probe = (name) => {
    const node = document.createElement('i');
    node.style.color = `var(${name})`;
    document.body.append(node);
    const found = colour(getComputedStyle(node).color);
    node.remove();
    return found;
  };
  const paleMarks = ['--ready', '--use', '--open', '--care', '--fail'].map((name) => [name, contrast(probe(name), probe('--paper'))])
    .filter(([, ratio]) => ratio < 3).map(([name, ratio]) => `${name} ${ratio.toFixed(2)}`);
  const stickingOut = all('body *').filter((element) => !element.closest('script, .unseen, .skip') && shown(element))
    .filter((element) => { const box = element.getBoundingClientRect(); return box.right > innerWidth + 0.5 || box.left < -0.5; }).map(called);
  const headings = all('h1, h2, h3').filter(shown).map((heading) => Number(heading.tagName[1]));
  return {
    overflow: document.documentElement.scrollWidth - innerWidth,
    stickingOut,
    lowContrast,
    paleMarks,
    landmarks: ['header', 'main', 'footer', 'nav'].filter((name) => all(name).some(shown)),
    skippedHeadings: headings.filter((level, index) => level > (headings[index - 1] || 0) + 1).length,
    dark: matchMedia('(prefers-color-scheme: dark)').matches,
    paper: getComputedStyle(document.body).backgroundColor,
    elements: all('*').length,
    noCharts: all('figure svg').filter((svg) => shown(svg) && ![...svg.querySelectorAll('.area')].length).length,
  };
})()
