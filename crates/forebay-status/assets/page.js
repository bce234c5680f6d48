// Draws what the event stream says. All data goes through textContent and attributes, never through markup.
(() => {
  'use strict';
  const SPAN = 300;
  const EVENTS = 200;
  const $ = (id) => document.getElementById(id);
  const base = location.pathname.replace(/\/?$/, '/');

  // ---- words -------------------------------------------------------------------------------------------------
  const count = (number) => Number(number).toLocaleString('en-US', { maximumFractionDigits: 1 });
  const rate = (number) => (number >= 10 ? count(Math.round(number)) : String(Math.round(number * 10) / 10));
  const time = (seconds) => {
    if (seconds < 10) return `${Math.round(seconds * 10) / 10} s`;
    if (seconds < 120) return `${Math.round(seconds)} s`;
    const minutes = Math.round(seconds / 60);
    if (minutes < 60) return `${minutes} min`;
    const hours = Math.floor(minutes / 60);
    if (hours >= 48) return `${Math.floor(hours / 24)} d ${hours % 24} h`;
    return minutes % 60 ? `${hours} h ${minutes % 60} min` : `${hours} h`;
  };
  // To the second, for ages: "9 min 15 s".
  const age = (seconds) => {
    const whole = Math.round(seconds);
    if (whole < 120) return `${whole} s`;
    const [minutes, rest] = [Math.floor(whole / 60), whole % 60];
    return rest ? `${minutes} min ${rest} s` : `${minutes} min`;
  };
  const clock = (unix) => new Date(unix * 1000).toTimeString().slice(0, 8);
  const SIGNS = { good: '●', notice: '◐', bad: '▲' };
  const STATES = { on_demand: 'on demand' };
  const state = (pool) => STATES[pool.state] || pool.state;

  // ---- elements ----------------------------------------------------------------------------------------------
  const put = (node, text) => { if (node.textContent !== text) node.textContent = text; };
  const set = (node, name, value) => { if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value); };
  const make = (tag, className, text) => {
    const node = document.createElement(tag);
    if (className) node.className = className;
    if (text !== undefined) node.textContent = text;
    return node;
  };
  // Gives a parent exactly as many children as there are items, and fills each in: nothing piles up.
  const fill = (parent, items, build, update) => {
    while (parent.children.length > items.length) parent.lastElementChild.remove();
    items.forEach((item, index) => {
      if (!parent.children[index]) parent.append(build());
      update(parent.children[index], item);
    });
  };
  const pairs = (list, items) => {
    fill(list, items.flatMap((item) => [item, item]), () => make('dt'), () => {});
    items.forEach(([term, value], index) => {
      const [dt, dd] = [list.children[index * 2], list.children[index * 2 + 1]];
      put(dt, term);
      if (dd.tagName !== 'DD') dd.replaceWith(make('dd', '', value));
      else put(dd, value);
    });
  };
  const rows = (body, items) => fill(body, items, () => {
    const row = make('tr');
    const head = make('th');
    head.scope = 'row';
    row.append(head, make('td'));
    return row;
  }, (row, [name, number]) => {
    put(row.children[0], name);
    put(row.children[1], count(number));
    row.className = number ? '' : 'zero';
  });
  const bars = (parent, parts) => fill(parent, parts, () => make('i'), (node, [className, share]) => {
    node.className = className;
    node.style.width = `${Math.max(0, Math.min(1, share)) * 100}%`;
  });

  // ---- state -------------------------------------------------------------------------------------------------
  let last = null;
  let heard = 0;
  let stale = false;
  const histories = new Map();
  const events = new Map();
  let announced = '';
  let pointed = null;

  const chosenName = () => {
    try { return decodeURIComponent((location.hash.match(/^#pool=(.*)$/) || [])[1] || ''); } catch { return ''; }
  };
  const chosen = () => last && (last.pools.find((pool) => pool.name === chosenName()) || last.pools[0]);

  const sum = (counts) => Object.values(counts).reduce((total, number) => total + number, 0);
  const remember = (message) => {
    const present = new Set(message.pools.map((pool) => pool.name));
    for (const name of histories.keys()) if (!present.has(name)) histories.delete(name);
    for (const pool of message.pools) {
      if (!pool.levels) continue;
      const points = histories.get(pool.name) || [];
      const { levels: l, counters: c, refill: r } = pool;
      points.push([message.time, l.ready, l.in_use, l.in_maintenance, l.opening, l.waiting, c.opened, sum(c.open_failures),
        sum(c.discards), c.waits, r.permitted_per_second === null ? null : r.permitted_per_second * r.rate_share]);
      while (points.length > 1 && points[0][0] < message.time - SPAN - 1) points.shift();
      histories.set(pool.name, points);
    }
  };
  const addEvents = (list) => {
    for (const event of list) events.set(event.id, event);
    while (events.size > EVENTS) events.delete(events.keys().next().value);
  };

  // ---- charts ------------------------------------------------------------------------------------------------
  const SVG = 'http://www.w3.org/2000/svg';
  const svg = (tag, className, parent) => {
    const node = document.createElementNS(SVG, tag);
    if (className) node.setAttribute('class', className);
    if (parent) parent.append(node);
    return node;
  };
  // Round steps, of which two to five fit.
  const steps = (top) => {
    const unit = 10 ** Math.floor(Math.log10(Math.max(top, 1)));
    const step = [0.2, 0.25, 0.5, 1, 2, 5].map((part) => part * unit).find((size) => size >= 1 && Number.isInteger(size) && top / size < 4) || Math.max(unit, 1);
    return [0, 1, 2, 3].map((index) => index * step).filter((value) => value <= top);
  };
  const LEFT = 34;
  const RIGHT = 6;
  const BOTTOM = 18;

  // A chart has a fixed set of elements. Drawing changes their attributes only.
  const chart = (id, parts, draw) => {
    const figure = $(id);
    const plot = make('div', 'plot');
    const root = svg('svg', '', plot);
    root.setAttribute('role', 'img');
    root.setAttribute('tabindex', '0');
    const grid = svg('path', 'grid', root);
    const axis = svg('path', 'axis', root);
    const shapes = Object.fromEntries(parts.map(([name, tag, className]) => [name, svg(tag, className, root)]));
    const yLabels = [0, 1, 2, 3].map(() => { const text = svg('text', '', root); text.setAttribute('text-anchor', 'end'); return text; });
    const xLabels = [0, 1, 2, 3, 4, 5].map(() => { const text = svg('text', '', root); text.setAttribute('text-anchor', 'middle'); return text; });
    const hair = svg('path', 'hair', root);
    const when = svg('text', 'when', root);
    figure.append(plot);
    const self = { figure, root, shapes, width: 0, height: 0, legend: figure.querySelector('.legend') };
    self.frame = (most, xTicks) => {
      const { width, height } = self;
      const [top, ticks] = [most * 1.06, steps(most)];
      self.y = (value) => (height - BOTTOM) * (1 - value / top);
      set(grid, 'd', ticks.slice(1).map((value) => `M${LEFT} ${self.y(value).toFixed(1)}H${width - RIGHT}`).join('') || 'M0 0');
      set(axis, 'd', `M${LEFT} ${height - BOTTOM}H${width - RIGHT}`);
      yLabels.forEach((label, index) => {
        const value = ticks[index];
        if (value === undefined) { put(label, ''); return; }
        set(label, 'x', LEFT - 6);
        set(label, 'y', (self.y(value) + 4).toFixed(1));
        put(label, count(value));
      });
      xLabels.forEach((label, index) => {
        const tick = xTicks[index];
        if (!tick) { put(label, ''); return; }
        set(label, 'x', tick[0].toFixed(1));
        set(label, 'y', height - 4);
        put(label, tick[1]);
      });
    };
    self.hairAt = (x, text) => {
      set(hair, 'd', x === null ? 'M0 0' : `M${x.toFixed(1)} 0V${self.height - BOTTOM}`);
      put(when, x === null ? '' : text);
      if (x !== null) { set(when, 'x', Math.min(Math.max(x, LEFT + 26), self.width - RIGHT - 26).toFixed(1)); set(when, 'y', self.height - 4); }
    };
    self.say = (items) => fill(self.legend, items, () => {
      const item = make('li');
      item.append(make('i'), make('span'), document.createTextNode(' '), make('b'));
      return item;
    }, (item, [className, name, value]) => {
      item.children[0].className = className;
      put(item.children[1], name);
      put(item.children[2], value);
    });
    self.draw = (pool) => { if (self.width > 0) draw(self, pool); };
    new ResizeObserver(() => {
      const box = plot.getBoundingClientRect();
      [self.width, self.height] = [box.width, box.height];
      set(root, 'viewBox', `0 0 ${box.width} ${box.height}`);
      render();
    }).observe(plot);
    return self;
  };

  // Charts over time share their axis, and the moment that is pointed at.
  const timeline = (id, parts, draw) => {
    const self = chart(id, parts, (drawn, pool) => {
      const points = histories.get(pool.name) || [];
      const now = last.time;
      drawn.x = (at) => LEFT + (drawn.width - LEFT - RIGHT) * (1 + (at - now) / SPAN);
      drawn.from = now - SPAN;
      let index = points.length - 1;
      if (pointed !== null) {
        const at = now - pointed;
        while (index > 0 && points[index][0] > at) index -= 1;
      }
      draw(drawn, pool, points, index);
      drawn.hairAt(pointed === null || !points[index] ? null : Math.max(drawn.x(points[index][0]), LEFT), points[index] ? clock(points[index][0]) : '');
    });
    self.minutes = () => [5, 4, 3, 2, 1, 0].map((ago) => [self.x(last.time - ago * 60), ago ? `−${ago} min` : 'now'])
      .filter((tick, index) => self.width > 420 || index % 2 === 1);
    const point = (ago) => { pointed = ago === null ? null : Math.min(Math.max(ago, 0), SPAN); render(); };
    self.root.addEventListener('pointermove', (event) => {
      const box = self.root.getBoundingClientRect();
      point(SPAN * (1 - (event.clientX - box.left - LEFT) / (box.width - LEFT - RIGHT)));
    });
    self.root.addEventListener('pointerleave', () => point(null));
    self.root.addEventListener('blur', () => point(null));
    self.root.addEventListener('keydown', (event) => {
      const step = { ArrowLeft: 5, ArrowRight: -5, Home: SPAN, End: -SPAN }[event.key];
      if (event.key === 'Escape') point(null);
      if (step === undefined) return;
      event.preventDefault();
      point((pointed || 0) + step);
    });
    return self;
  };

  // Areas on top of each other, from columns of the history.
  const stack = (drawn, points, layers) => {
    const visible = points.filter((point) => point[0] >= drawn.from);
    const feet = visible.map(() => 0);
    for (const [shape, column] of layers) {
      const tops = visible.map((point, index) => feet[index] + point[column]);
      const upper = visible.map((point, index) => `${drawn.x(point[0]).toFixed(1)} ${drawn.y(tops[index]).toFixed(1)}`);
      const lower = visible.map((point, index) => `${drawn.x(point[0]).toFixed(1)} ${drawn.y(feet[index]).toFixed(1)}`).reverse();
      set(drawn.shapes[shape], 'd', visible.length > 1 ? `M${upper.join('L')}L${lower.join('L')}Z` : 'M0 0');
      tops.forEach((top, index) => { feet[index] = top; });
    }
  };
  const most = (points, read) => points.reduce((top, point) => Math.max(top, read(point)), 0);

  const levels = timeline('levels', [['open', 'path', 'area f-open'], ['ready', 'path', 'area f-ready soft'], ['care', 'path', 'area f-care soft'],
    ['use', 'path', 'area f-use soft'], ['limit', 'path', 's-limit'], ['low', 'path', 's-low']], (drawn, pool, points, index) => {
    const { max_open: bound, low_watermark: low } = pool.levels;
    drawn.frame(Math.max(bound, most(points, (point) => point[1] + point[2] + point[3] + point[4])), drawn.minutes());
    stack(drawn, points, [['use', 2], ['care', 3], ['ready', 1], ['open', 4]]);
    const across = (value) => `M${LEFT} ${drawn.y(value).toFixed(1)}H${drawn.width - RIGHT}`;
    set(drawn.shapes.limit, 'd', across(bound));
    set(drawn.shapes.low, 'd', low < bound && low > 0 ? across(low) : 'M0 0');
    const point = points[index] || [0, 0, 0, 0, 0, 0];
    const legend = [['use', 'in use', count(point[2])], ['ready', 'ready', count(point[1])], ['open', 'opening', count(point[4])],
      ['line', 'max_open', count(bound)]];
    if (point[3]) legend.splice(1, 0, ['care', 'in maintenance', count(point[3])]);
    if (low < bound && low > 0) legend.push(['line dots', 'low watermark', count(low)]);
    drawn.say(legend);
    set(drawn.root, 'aria-label', `Connections over the last five minutes. Now ${legend.map(([, name, value]) => `${name} ${value}`).join(', ')}. Arrow keys show earlier values.`);
  });
  (() => {
    const defs = svg('defs', '', levels.root);
    const pattern = svg('pattern', '', defs);
    for (const [name, value] of Object.entries({ id: 'hatch', width: 7, height: 7, patternUnits: 'userSpaceOnUse', patternTransform: 'rotate(45)' })) pattern.setAttribute(name, value);
    const line = svg('path', 'hatch', pattern);
    line.setAttribute('d', 'M0 0V7');
  })();

  // What a counter grew by in each second.
  const perSecond = (points, column) => {
    const seconds = new Map();
    for (let index = 1; index < points.length; index += 1) {
      const second = Math.floor(points[index][0]);
      const growth = Math.max(0, points[index][column] - points[index - 1][column]);
      seconds.set(second, (seconds.get(second) || 0) + growth);
    }
    return seconds;
  };
  const columns = (drawn, bottom, top) => [...top].filter(([second, number]) => number > 0 && second >= drawn.from).map(([second, number]) => {
    const foot = bottom.get(second) || 0;
    const [left, right] = [drawn.x(second), Math.max(drawn.x(second + 1), drawn.x(second) + 1)];
    return `M${Math.max(left, LEFT).toFixed(1)} ${drawn.y(foot).toFixed(1)}V${drawn.y(foot + number).toFixed(1)}H${Math.min(right, drawn.width - RIGHT).toFixed(1)}V${drawn.y(foot).toFixed(1)}Z`;
  }).join('') || 'M0 0';

  const opens = timeline('opens', [['opened', 'path', 'area f-ready'], ['failed', 'path', 'area f-fail'], ['limit', 'path', 's-limit']], (drawn, pool, points, index) => {
    const [opened, failed] = [perSecond(points, 6), perSecond(points, 7)];
    const limit = most(points, (point) => point[10] || 0);
    const peak = [...opened.keys()].reduce((top, second) => Math.max(top, opened.get(second) + (failed.get(second) || 0)), 0);
    drawn.frame(Math.max(limit, peak, 2), drawn.minutes());
    set(drawn.shapes.opened, 'd', columns(drawn, new Map(), opened));
    set(drawn.shapes.failed, 'd', columns(drawn, opened, failed));
    const limited = points.filter((point) => point[0] >= drawn.from && point[10] !== null);
    set(drawn.shapes.limit, 'd', limited.length > 1 ? `M${limited.map((point) => `${drawn.x(point[0]).toFixed(1)} ${drawn.y(point[10]).toFixed(1)}`).join('L')}` : 'M0 0');
    const point = points[index];
    const second = point ? Math.floor(point[0]) : 0;
    const at = (counts, live) => (pointed === null ? rate(live) : rate(counts.get(second) || 0));
    const legend = [['ready', 'opened', at(opened, pool.rates.opens_per_second)]];
    if (peak && most([...failed.values()], (number) => number)) legend.push(['fail', 'failed', at(failed, pool.rates.open_failures_per_second)]);
    if (point && point[10] !== null) legend.push(['line', 'limit', rate(point[10])]);
    legend.push(['none', 'peak', rate(pool.rates.opens_per_second_peak)]);
    drawn.say(legend);
    set(drawn.root, 'aria-label', `Opens per second over the last five minutes. Now ${legend.map(([, name, value]) => `${name} ${value}`).join(', ')}. Arrow keys show earlier values.`);
  });

  const waiting = timeline('waiting', [['waiting', 'path', 'area f-fail soft']], (drawn, pool, points, index) => {
    drawn.frame(Math.max(most(points, (point) => point[5]), 2), drawn.minutes());
    stack(drawn, points, [['waiting', 5]]);
    const point = points[index];
    drawn.say([['fail', 'waiting', count(point ? point[5] : 0)]]);
    put($('waiting-note'), pool.rates.waits_per_second ? `${rate(pool.rates.waits_per_second)}/s had to wait` : '');
    set(drawn.root, 'aria-label', `Callers in the queue over the last five minutes. Now ${count(pool.levels.waiting)}. Arrow keys show earlier values.`);
  });

  const ages = chart('ages', [['band', 'path', 'f-band'], ['use', 'path', 'area f-use'], ['care', 'path', 'area f-care'], ['ready', 'path', 'area f-ready'],
    ['turn', 'path', 's-limit'], ['limit', 'path', 's-edge'], ['note', 'text', 'edge-note']], (drawn, pool) => {
    const list = pool.ages;
    drawn.figure.hidden = !list;
    if (!list) return;
    const { lifetime, server_limit_seconds: limit } = pool.config;
    const width = list.bar_seconds;
    const end = list.ready.length * width;
    const x = (at) => LEFT + (drawn.width - LEFT - RIGHT) * Math.min(at / end, 1);
    const totals = list.ready.map((number, index) => number + list.in_use[index] + list.in_maintenance[index]);
    const minutes = Math.max(1, Math.ceil(end / 60 / (drawn.width > 420 ? 6 : 3)));
    const ticks = end > 180
      ? [0, 1, 2, 3, 4, 5].map((index) => index * minutes * 60).filter((at) => at <= end * 0.97)
      : [0, 1, 2, 3, 4, 5].map((index) => index * Math.max(1, Math.round(end / 5))).filter((at) => at <= end * 0.97);
    drawn.frame(Math.max(most(totals, (number) => number), 2), ticks.map((at) => [x(at), end > 180 ? `${at / 60} min` : `${at} s`]));
    const feet = totals.map(() => 0);
    for (const [shape, numbers] of [['use', list.in_use], ['care', list.in_maintenance], ['ready', list.ready]]) {
      const bar = (number, index) => {
        if (!number) return '';
        const [left, right] = [x(index * width) + 0.5, x((index + 1) * width) - 0.5];
        return `M${left.toFixed(1)} ${drawn.y(feet[index]).toFixed(1)}V${drawn.y(feet[index] + number).toFixed(1)}H${right.toFixed(1)}V${drawn.y(feet[index]).toFixed(1)}Z`;
      };
      set(drawn.shapes[shape], 'd', numbers.map(bar).join('') || 'M0 0');
      numbers.forEach((number, index) => { feet[index] += number; });
    }
    const upright = (at) => `M${x(at).toFixed(1)} 0V${drawn.height - BOTTOM}`;
    const legend = [['use', 'in use', ''], ['ready', 'ready', '']];
    const guard = list.earliest_guard_seconds ?? (lifetime && lifetime.base_seconds - lifetime.jitter_seconds / 2 - lifetime.guard_seconds);
    const last = lifetime && lifetime.base_seconds + lifetime.jitter_seconds / 2;
    set(drawn.shapes.band, 'd', lifetime ? `M${x(guard).toFixed(1)} 0H${x(last).toFixed(1)}V${drawn.height - BOTTOM}H${x(guard).toFixed(1)}Z` : 'M0 0');
    const turn = list.earliest_retirement_seconds;
    set(drawn.shapes.turn, 'd', turn === null ? 'M0 0' : upright(turn));
    if (turn !== null) legend.push(['turn', 'replaced from', age(turn)]);
    if (lifetime) legend.push(['band', 'guard window from', age(guard)]);
    const inside = limit !== null && limit <= end;
    set(drawn.shapes.limit, 'd', inside ? upright(limit) : 'M0 0');
    if (inside) legend.push(['edge', 'server limit', age(limit)]);
    put(drawn.shapes.note, limit !== null && !inside ? `server limit ${age(limit)} →` : '');
    set(drawn.shapes.note, 'x', drawn.width - RIGHT);
    set(drawn.shapes.note, 'y', 12);
    drawn.say(legend);
    put($('ages-note'), totals.some((number) => number) ? `oldest ${age(list.oldest_seconds)}${list.next_retirement_seconds === null ? '' : `, next replacement ${list.next_retirement_seconds ? `in ${time(list.next_retirement_seconds)}` : 'due'}`}` : 'no connections');
    set(drawn.root, 'aria-label', `Ages of connections: ${count(sum(totals))} from 0 to ${age(list.oldest_seconds)}; ${legend.slice(2).map(([, name, value]) => `${name} ${value}`).join(', ')}${limit !== null && !inside ? `, server limit ${age(limit)}` : ''}.`);
  });
  const charts = [levels, opens, waiting, ages];

  // ---- parts of the page -------------------------------------------------------------------------------------
  const FIGURES = [['ready', 'Ready'], ['use', 'In use'], ['open', 'Opening'], ['', 'Waiting'], ['', 'Opens / s'], ['', 'Checkouts / s']];
  const CALLERS = (c) => [['got a connection', c.checkouts], ['had to wait for it', c.waits], ['found none ready while some were missing', c.empty],
    ['gave up: connections were missing', c.checkout_failures.empty], ['gave up: all were in use', c.checkout_failures.exhausted],
    ['refused: the server denies access', c.checkout_failures.denied]];
  const REASONS = {
    insufficient_remaining_lifetime: 'in its guard window', expired_on_checkout: 'expired, found at a checkout', expired_on_return: 'expired, found at a return',
    expired_on_scan: 'expired', expiring_soon_on_scan: 'in its guard window, found by the scan', reservoir_full: 'one too many', bad: 'found unusable',
    reset_failed: 'could not be reset', died: 'died', idle: 'idle for too long', retired: 'replaced on schedule', draining: 'the pool is closed', recalled: 'lease recalled',
    lease_acquire: 'no lease', rate_limit: 'no permit in time', token_provider: 'no token', connection_open: 'refused or interrupted', connect_timeout: 'took too long',
    auth: 'credentials rejected', throttled: 'the server throttled it', too_many_connections: 'the server has too many connections',
  };
  const byReason = (counts, keep) => {
    const all = Object.entries(counts).map(([reason, number]) => [REASONS[reason] || reason, number]).filter(([, number]) => number > 0).sort((a, b) => b[1] - a[1]);
    return all.length ? all : [[keep, 0]];
  };

  const renderNow = (pool) => {
    const { levels: l, rates: r, refill } = pool;
    put($('name'), pool.name);
    put($('mode'), pool.mode ? `${pool.mode} mode` : '');
    const sentence = $('sentence');
    set(sentence, 'class', pool.tone);
    put(sentence.children[0], SIGNS[pool.tone]);
    put(sentence.children[1], pool.sentence);
    // A screen reader hears of each new state, not of each number.
    const kind = `${pool.name} ${pool.state}`;
    if (kind !== announced) { announced = kind; put($('announce'), `${pool.name}: ${pool.sentence}`); }

    const bar = $('bar');
    if (!bar.children.length) bar.append(make('div', 'parts'), make('div', 'tick'), make('div', 'tick low'));
    const room = Math.max(l.max_open, l.usable + l.opening, 1);
    bars(bar.children[0], [['use', l.in_use / room], ['care', l.in_maintenance / room], ['ready', l.ready / room], ['open', l.opening / room]]);
    [[l.target_ready, 'target'], [l.low_watermark, 'low watermark']].forEach(([value, label], index) => {
      const tick = bar.children[index + 1];
      const shown = value > 0 && !(index === 1 && l.low_watermark === l.target_ready);
      tick.hidden = !shown;
      if (!tick.firstChild) tick.append(make('span'));
      tick.style.left = `${Math.min(value / room, 1) * 100}%`;
      tick.className = `tick${index ? ' low' : ''}${value / room < 0.3 ? ' start' : ''}`;
      put(tick.firstChild, `${label} ${count(value)}`);
    });
    set(bar, 'aria-label', `${count(l.in_use)} in use, ${count(l.ready)} ready and ${count(l.opening)} opening, of at most ${count(l.max_open)}; target ${count(l.target_ready)}, low watermark ${count(l.low_watermark)}`);

    const limit = refill.permitted_per_second === null ? 'no limit' : `of ${rate(refill.permitted_per_second * refill.rate_share)}/s permitted`;
    const waits = refill.waiting_for_token ? `${count(refill.waiting_for_token)} wait for a token` : refill.waiting_for_lease ? `${count(refill.waiting_for_lease)} wait for a lease`
      : refill.waiting_for_permit ? `${count(refill.waiting_for_permit)} wait for a permit` : refill.paused_seconds !== null ? `paused for ${time(refill.paused_seconds)}` : refill.missing ? `${count(refill.missing)} more missing` : l.opening ? 'under way' : 'none missing';
    const cause = !l.waiting ? 'nobody' : l.usable < l.max_open ? 'connections are missing' : 'all are in use';
    const values = [[count(l.ready), `target ${count(l.target_ready)}`], [count(l.in_use), `of ${count(l.max_open)} at most`], [count(l.opening), waits],
      [count(l.waiting), cause, l.waiting > 0], [rate(r.opens_per_second), limit], [rate(r.checkouts_per_second), `${count(pool.counters.checkouts)} since the start`]];
    fill($('figures'), values, () => {
      const group = make('div');
      const value = make('dd');
      value.append(make('span'), make('small'));
      const term = make('dt');
      term.append(make('i'), make('span'));
      group.append(term, value);
      return group;
    }, () => {});
    values.forEach(([value, note, alarm], index) => {
      const [term, definition] = $('figures').children[index].children;
      const [className, label] = FIGURES[index];
      term.children[0].className = className;
      term.children[0].hidden = !className;
      put(term.children[1], label);
      put(definition.children[0], value);
      put(definition.children[1], note);
      set($('figures').children[index], 'class', alarm ? 'alarm' : '');
    });
  };

  const renderTables = (pool) => {
    const { counters: c, fleet, token, config } = pool;
    rows($('waits'), CALLERS(c));
    rows($('discards'), byReason(c.discards, 'none yet'));
    $('failures-table').hidden = !sum(c.open_failures);
    rows($('failures'), byReason(c.open_failures, 'none yet'));
    $('fleet').hidden = !fleet;
    if (fleet) {
      const limit = Math.max(fleet.limit, fleet.active, 1);
      bars($('fleet-meter'), [['use', fleet.leases / limit], ['others', Math.max(0, fleet.active - fleet.leases) / limit]]);
      set($('fleet-meter'), 'aria-label', `${count(fleet.leases)} leases of this instance and ${count(fleet.active)} of the whole fleet, of ${count(fleet.limit)}`);
      pairs($('fleet-facts'), [['this instance', `${count(fleet.leases)} leases from ${count(fleet.slots)} slots`], ['the fleet', `${count(fleet.active)} of ${count(fleet.limit)}`],
        ['instance', fleet.instance], ['table', fleet.outage_seconds === null ? 'answers' : `has not answered for ${time(fleet.outage_seconds)}`]]);
    }
    $('token').hidden = !token;
    if (token) {
      const life = Math.max(token.age_seconds + token.good_for_seconds, 1);
      bars($('token-meter'), [['use', token.age_seconds / life]]);
      set($('token-meter'), 'aria-label', `the token is ${time(token.age_seconds)} old and can be used for ${time(token.good_for_seconds)} more`);
      pairs($('token-facts'), [['age', time(token.age_seconds)], ['can be used for', time(token.good_for_seconds)],
        ['signing the next', token.failures ? `failed ${count(token.failures)} times in a row` : 'no failure']]);
    }
    const life = config.lifetime;
    pairs($('settings'), [['max_open', count(config.max_open)], ['target', config.on_demand ? `on demand, ${count(config.target_ready)} idle` : count(config.target_ready)],
      ['low watermark', count(config.low_watermark)],
      ['lifetime', life ? `${age(life.base_seconds)} ± ${age(life.jitter_seconds / 2)}, guard window ${age(life.guard_seconds)}` : 'not limited'],
      ['server limit', config.server_limit_seconds === null ? 'not known' : age(config.server_limit_seconds)],
      ['limiter', `${pool.refill.limiter}${pool.refill.permitted_per_second === null ? '' : `, ${rate(pool.refill.permitted_per_second)}/s`}, ${count(pool.refill.permitted_at_once)} at once now`]]);
  };

  const renderPools = () => {
    const many = last.pools.length > 1;
    $('pools').hidden = !many;
    if (!many) return;
    const current = chosen();
    fill($('pools').firstElementChild, last.pools, () => {
      const item = make('li');
      const link = make('a');
      const counts = make('span', 'counts');
      counts.append(make('b'), make('span'));
      link.append(make('span', 'sign'), make('span', 'name'), make('span', 'words'), make('span', 'small'), counts);
      item.append(link);
      return item;
    }, (item, pool) => {
      const link = item.firstElementChild;
      const [sign, name, words, small, counts] = link.children;
      set(link, 'href', `#pool=${encodeURIComponent(pool.name)}`);
      if (pool === current) set(link, 'aria-current', 'true'); else link.removeAttribute('aria-current');
      set(sign, 'class', `sign ${pool.tone}`);
      put(sign, SIGNS[pool.tone]);
      set(sign, 'role', 'img');
      set(sign, 'aria-label', state(pool));
      put(name, pool.name);
      put(words, pool.sentence);
      const l = pool.levels || { ready: 0, in_use: 0, in_maintenance: 0, opening: 0, usable: 0, max_open: 1 };
      const room = Math.max(l.max_open, l.usable + l.opening, 1);
      bars(small, [['use', l.in_use / room], ['care', l.in_maintenance / room], ['ready', l.ready / room], ['open', l.opening / room]]);
      put(counts.children[0], count(l.usable));
      put(counts.children[1], ` of ${count(l.max_open)} usable`);
    });
  };

  const renderEvents = () => {
    const list = [...events.values()].reverse();
    const many = last.pools.length > 1;
    $('quiet').hidden = list.length > 0;
    $('events').hidden = !list.length;
    fill($('events'), list, () => {
      const item = make('li');
      const what = make('span', 'what');
      what.append(make('span', 'sign'), make('b'), make('span'));
      item.append(make('time'), what);
      return item;
    }, (item, event) => {
      const [when, what] = item.children;
      put(when, clock(event.time));
      const utc = new Date(event.time * 1000).toISOString();
      set(when, 'datetime', utc);
      set(when, 'title', utc);
      set(item, 'class', event.pool === null ? 'note' : '');
      set(what.children[0], 'class', `sign ${event.tone}`);
      put(what.children[0], event.tone ? `${event.tone === 'bad' ? '▲' : '●'} ` : '');
      set(what.children[0], 'aria-hidden', 'true');
      put(what.children[1], many && event.pool !== null ? `${event.pool} ` : '');
      const lasted = event.until - event.time;
      put(what.children[2], lasted >= 1 ? `${event.text} (within ${time(lasted)})` : event.text);
    });
  };

  let eventsChanged = true;
  const render = () => {
    if (!last || document.hidden) return;
    const pools = last.pools.length;
    const tone = last.pools.some((pool) => pool.tone === 'bad') ? 'bad' : last.pools.some((pool) => pool.tone === 'notice') ? 'notice' : 'good';
    put($('process'), `up ${time(last.process.uptime_seconds)}, ${pools} ${pools === 1 ? 'pool' : 'pools'}, ${last.ready ? 'ready' : 'not ready'}`);
    put($('version'), `forebay ${last.forebay}`);
    const pool = chosen();
    const title = pool ? `${SIGNS[tone]} ${pool.name}: ${state(pool)} · Forebay` : 'Forebay';
    if (document.title !== title) document.title = title;
    const colour = { good: '%23128f6a', notice: '%23c47600', bad: '%23c23f00' }[tone];
    set($('icon'), 'href', `data:image/svg+xml,<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'><rect y='3' width='16' height='10' rx='2' fill='${colour}'/></svg>`);
    renderPools();
    // A pool that was gone before its first sample has no numbers.
    $('none').hidden = Boolean(pool);
    $('gone').hidden = !pool || Boolean(pool.levels);
    if (pool) put($('gone'), `${pool.name} is ${pool.sentence}`);
    $('details').hidden = !pool || !pool.levels;
    if (pool && pool.levels) {
      renderNow(pool);
      renderTables(pool);
      for (const each of charts) each.draw(pool);
    }
    if (eventsChanged) { eventsChanged = false; renderEvents(); }
  };

  // ---- the stream --------------------------------------------------------------------------------------------
  const lost = (isLost) => {
    stale = isLost;
    document.body.classList.toggle('stale', isLost && Boolean(last));
    $('lost').hidden = !isLost;
    if (isLost) put($('lost'), last ? `Connection lost. This is the state at ${clock(last.time)}. Trying again …` : 'No connection to the process. Trying again …');
  };
  const take = (event, isWhole) => {
    const message = JSON.parse(event.data);
    heard = performance.now();
    if (stale) lost(false);
    if (isWhole) {
      histories.clear();
      for (const [name, points] of Object.entries(message.history)) histories.set(name, points);
      events.clear();
    }
    last = message;
    if (!isWhole) remember(message);
    if (isWhole || message.events.length) eventsChanged = true;
    addEvents(message.events);
    render();
  };
  let source = null;
  const connect = () => {
    if (source) source.close();
    source = new EventSource(`${base}events`);
    source.addEventListener('whole', (event) => take(event, true));
    source.addEventListener('sample', (event) => take(event, false));
    source.addEventListener('error', () => {
      lost(true);
      // After an answer such as 503, a browser does not try again by itself.
      if (source.readyState === EventSource.CLOSED) setTimeout(connect, 2000);
    });
  };
  // A stream can be silent without an error, such as when a machine sleeps.
  setInterval(() => {
    if (last && !stale && performance.now() - heard > 5000) lost(true);
    if (stale && source.readyState === EventSource.OPEN && performance.now() - heard > 20000) { heard = performance.now(); connect(); }
  }, 1000);

  for (const [id, path] of [['to-status', 'status.json'], ['to-metrics', 'metrics'], ['to-ready', 'readyz']]) $(id).href = base + path;
  document.querySelector('.skip').addEventListener('click', (event) => { event.preventDefault(); $('pool').focus(); });
  addEventListener('hashchange', render);
  document.addEventListener('visibilitychange', render);
  connect();
})();
