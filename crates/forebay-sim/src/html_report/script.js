// Shows the values under the pointer, in every chart at once. The report is complete without it.
(() => {
  const numbers = /-?[\d.]+/g;
  const charts = [...document.querySelectorAll('.chart')].flatMap((figure) => {
    const svg = figure.querySelector('svg');
    if (!svg) return [];
    const series = [...svg.querySelectorAll('[data-series]')].map((path) => {
      const found = path.getAttribute('d').match(numbers) || [];
      const columns = path.classList.contains('columns');
      const legend = document.getElementById(`${figure.id}-${path.dataset.series}`);
      return { numbers: found.map(Number), columns, legend, total: legend.textContent };
    });
    const hair = document.createElement('div');
    hair.className = 'hair';
    hair.hidden = true;
    hair.append(document.createElement('span'));
    svg.parentElement.append(hair);
    return [{ svg, series, hair, decade: svg.dataset.unit === 'decade' }];
  });
  if (charts.length === 0) return;
  const span = Number(charts[0].svg.dataset.span);

  // A line is pairs of time and value. Points between equal neighbours were dropped, so the nearest one counts.
  const onLine = (points, at) => {
    let nearest = 0;
    for (let i = 0; i < points.length - 1; i += 2) {
      if (Math.abs(points[i] - at) <= Math.abs(points[nearest] - at)) nearest = i;
    }
    return points[nearest + 1];
  };
  // A column is its start, its foot, its top, its end, and its foot again. It leaves a twentieth free on either side.
  const inColumns = (columns, at) => {
    for (let i = 0; i + 4 < columns.length; i += 5) {
      const gap = (columns[i + 3] - columns[i]) / 18;
      if (columns[i] - gap < at && at <= columns[i + 3] + gap) return [columns[i + 1], columns[i + 2]];
    }
    return [0, 0];
  };
  const wait = (seconds) => {
    const [size, unit] = seconds >= 1 ? [1, 's'] : seconds >= 1e-3 ? [1e-3, 'ms'] : [1e-6, 'µs'];
    return Number((seconds / size).toPrecision(3)) + unit;
  };
  const shown = ({ columns, numbers }, at, decade) => {
    const [foot, top] = columns ? inColumns(numbers, at) : [0, onLine(numbers, at)];
    if (decade) return top > foot ? wait(10 ** top) : '0s';
    return (top - foot).toLocaleString('en-US', { maximumFractionDigits: 2 });
  };
  const clock = (at) => {
    const two = (number) => String(Math.floor(number)).padStart(2, '0');
    const minutes = span > 3600 ? `${Math.floor(at / 3600)}:${two((at / 60) % 60)}` : Math.floor(at / 60);
    return `${minutes}:${two(at % 60)}`;
  };
  const bands = [...charts[0].svg.querySelectorAll('.band')].map((band) => {
    const from = band.x.baseVal.value;
    return { from, to: from + band.width.baseVal.value, name: band.textContent };
  });
  const disturbanceAt = (share) => {
    const x = share * charts[0].svg.viewBox.baseVal.width;
    const band = bands.find(({ from, to }) => from <= x && x <= to);
    return band ? ` ${band.name}` : '';
  };
  const show = (share) => {
    for (const { series, hair, decade } of charts) {
      hair.hidden = false;
      hair.style.left = `${share * 100}%`;
      // The label stays inside the chart: to the right of the line at the left end, and vice versa.
      hair.firstChild.style.transform = `translateX(${share * -100}%)`;
      hair.firstChild.textContent = clock(share * span) + disturbanceAt(share);
      for (const one of series) one.legend.textContent = shown(one, share * span, decade);
    }
  };
  const hide = () => {
    for (const { series, hair } of charts) {
      hair.hidden = true;
      for (const one of series) one.legend.textContent = one.total;
    }
  };
  for (const { svg } of charts) {
    svg.addEventListener('pointermove', (event) => {
      const box = svg.getBoundingClientRect();
      show(Math.min(1, Math.max(0, (event.clientX - box.left) / box.width)));
    });
    svg.addEventListener('pointerleave', hide);
  }
})();
