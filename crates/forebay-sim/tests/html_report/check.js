// Reports facts about the page as data. The test judges them.
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const colour = (text) => {
    const [red, green, blue, alpha = 1] = text.match(/[\d.]+/g).map(Number);
    return { red, green, blue, alpha };
  };
  const luminance = ({ red, green, blue }) => {
    const [r, g, b] = [red, green, blue].map((part) => part / 255)
      .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
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
    return null;
  };
  const called = (element) => `${element.tagName}.${element.className}: ${element.textContent.slice(0, 40)}`;
  const shown = (element) => element.checkVisibility({ opacityProperty: true, visibilityProperty: true });
  const texts = all('body *').filter((element) => !element.closest('svg, script') && shown(element)
    && [...element.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.data.trim()));
  const lowContrast = texts.flatMap((element) => {
    const [ink, paper] = [colour(getComputedStyle(element).color), ground(element)];
    const ratio = paper && ink.alpha === 1 ? contrast(ink, paper) : 0;
    return ratio >= 4.5 ? [] : [`${called(element)} ${ratio.toFixed(2)}`];
  });

  // Wide content scrolls inside its table.
  const stickingOut = all('body *').filter((element) => !element.closest('script') && !element.closest('.table table'))
    .filter((element) => { const box = element.getBoundingClientRect(); return box.right > innerWidth + 0.5 || box.left < -0.5; })
    .map(called);

  const charts = all('figure.chart').map((figure) => {
    const svg = figure.querySelector('svg');
    if (!svg) return { id: figure.id, instead: figure.querySelector('.instead').textContent };
    const box = svg.getBoundingClientRect();
    const paths = all('[data-series]', svg).map((path) => {
      const [drawn, style] = [path.getBoundingClientRect(), getComputedStyle(path)];
      const empty = !path.getAttribute('d');
      return {
        series: path.dataset.series,
        length: path.getTotalLength(),
        inside: empty || (drawn.left >= box.left - 1.5 && drawn.right <= box.right + 1.5
          && drawn.top >= box.top - 1.5 && drawn.bottom <= box.bottom + 1.5),
        visible: [style.fill, style.stroke].some((paint) => paint !== 'none' && contrast(colour(paint), ground(figure)) > 1.2),
      };
    });
    return {
      id: figure.id, role: svg.getAttribute('role'), label: svg.getAttribute('aria-label'), paths,
      bands: all('.band title', svg).map((title) => title.textContent),
    };
  });

  const text = document.body.innerText;
  // The values with the pointer at this share of the first chart's width.
  const point = (share) => {
    const svg = document.querySelector('.chart svg');
    if (!svg) return null;
    const values = () => Object.fromEntries(all('.legend b').map((value) => [value.id, value.textContent]));
    const hairs = () => all('.hair').filter(shown);
    const [box, before] = [svg.getBoundingClientRect(), values()];
    svg.dispatchEvent(new PointerEvent('pointermove', { clientX: box.left + box.width * share, clientY: box.top + 5 }));
    const found = {
      values: values(),
      hairs: hairs().length,
      label: document.querySelector('.hair')?.textContent,
      scroll_width: document.documentElement.scrollWidth,
    };
    svg.dispatchEvent(new PointerEvent('pointerleave'));
    return { ...found, put_back: JSON.stringify(values()) === JSON.stringify(before) && hairs().length === 0 };
  };

  const report = {
    dark: matchMedia('(prefers-color-scheme: dark)').matches,
    width: innerWidth,
    scroll_width: document.documentElement.scrollWidth,
    sticking_out: stickingOut,
    texts: texts.length,
    low_contrast: lowContrast,
    charts,
    pointed: [0, 0.55, 1].map(point),
    headless_tables: all('table').filter((table) => all('thead th[scope=col]', table).length === 0
      || all('tbody tr', table).some((row) => !row.querySelector('th[scope=row]'))).length,
    resources: performance.getEntriesByType('resource').map((entry) => entry.name).filter((name) => !name.startsWith('data:')),
    scripts: document.scripts.length,
    hostile: window.hostile ?? null,
    errors: window.errors,
    text,
  };
  const pre = document.createElement('pre');
  pre.id = 'report';
  pre.textContent = JSON.stringify(report).replace(/[&<>\u00a0]/g, (letter) => `\\u${letter.charCodeAt(0).toString(16).padStart(4, '0')}`);
  document.body.append(pre);
})();
