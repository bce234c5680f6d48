const source = new EventSource(location.pathname.replace(/\/?$/, '/events'));
const show = (event) => { document.getElementById('raw').textContent = JSON.stringify(JSON.parse(event.data).pools, null, 1); };
source.addEventListener('whole', show);
source.addEventListener('sample', show);
