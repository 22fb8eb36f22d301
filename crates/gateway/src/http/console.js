'use strict';
const at = id => document.getElementById(id);
const RECORDS_MAX = 500;
const PAGE = 200;
let bucket = null, key = null, source = null, arrivals = [];

function say(text, wrong) {
  at('message').textContent = text;
  at('message').classList.toggle('wrong', Boolean(wrong));
}

async function ask(method, path, body) {
  const headers = body === undefined ? {} : {'content-type': 'application/json'};
  const answer = await fetch(path, {method, headers, body: body === undefined ? undefined : JSON.stringify(body)});
  const text = await answer.text();
  const told = text ? JSON.parse(text) : null;
  if (!answer.ok) throw new Error(`${told.code}: ${told.message}`);
  return told;
}

// Runs what a click asks for, and says what went wrong.
const doing = work => async event => {
  event?.preventDefault();
  try { await work(event); } catch (error) { say(error.message, true); }
};

const bucketPath = name => `/v1/buckets/${encodeURIComponent(name)}`;
// A browser takes . and .. for steps in a path however they are written, so such a key can't be asked for from here.
const streamPath = (name, key) => `${bucketPath(name)}/streams/${encodeURIComponent(key)}`;

function fill(list, names, current, choose, keep) {
  if (!keep) list.replaceChildren();
  for (const name of names) {
    const item = document.createElement('li'), button = document.createElement('button');
    button.textContent = name;
    if (name === current) button.setAttribute('aria-current', 'true');
    button.addEventListener('click', doing(() => choose(name)));
    item.append(button);
    list.append(item);
  }
}

function mark(list, name) {
  for (const button of list.querySelectorAll('button')) {
    button.toggleAttribute('aria-current', button.textContent === name);
  }
}

async function listBuckets(after) {
  const page = await ask('GET', `/v1/buckets?limit=${PAGE}&after=${encodeURIComponent(after ?? '')}`);
  fill(at('buckets'), page.buckets.map(found => found.name), bucket, chooseBucket, after);
  at('more-buckets').hidden = !page.next;
  at('more-buckets').onclick = doing(() => listBuckets(page.next));
}

async function listStreams(after) {
  const page = await ask('GET', `${bucketPath(bucket)}/streams?limit=${PAGE}&after=${encodeURIComponent(after ?? '')}`);
  fill(at('streams'), page.streams.map(found => found.key), key, chooseStream, after);
  at('more-streams').hidden = !page.next;
  at('more-streams').onclick = doing(() => listStreams(page.next));
}

async function chooseBucket(name) {
  bucket = name;
  at('bucket').textContent = name;
  mark(at('buckets'), name);
  location.hash = encodeURIComponent(name);
  await listStreams();
}

async function chooseStream(name) {
  key = name;
  mark(at('streams'), name);
  location.hash = `${encodeURIComponent(bucket)}/${encodeURIComponent(name)}`;
  at('stream').textContent = `nova://${bucket}/${name}`;
  at('records').replaceChildren();
  arrivals = [];
  say('');
  await follow();
  await look();
}

const bytesOf = text => Uint8Array.from(atob(text), letter => letter.charCodeAt(0));

function shown(text) {
  const bytes = bytesOf(text);
  try { return new TextDecoder('utf-8', {fatal: true}).decode(bytes); } catch {
    return Array.from(bytes, byte => byte.toString(16).padStart(2, '0')).join(' ');
  }
}

function show(record) {
  const item = document.createElement('li');
  const headers = record.headers.map(([name, value]) => `${shown(name)}: ${shown(value)}`).join('\n');
  const parts = [record.seq_num, new Date(record.timestamp_ms).toISOString(), (headers && headers + '\n\n') + shown(record.body)];
  for (const part of parts) {
    const span = document.createElement('span');
    span.textContent = part;
    item.append(span);
  }
  at('records').prepend(item);
  while (at('records').childElementCount > RECORDS_MAX) at('records').lastElementChild.remove();
}

async function follow() {
  source?.close();
  const tail = await ask('GET', `${streamPath(bucket, key)}/tail`).catch(() => ({seq_num: 0}));
  const live = new EventSource(`${streamPath(bucket, key)}/records?encoding=base64&last=50`);
  source = live;
  live.onopen = () => { at('state').textContent = 'live'; };
  live.onmessage = event => {
    if (source !== live) return;
    const record = JSON.parse(event.data);
    show(record);
    if (record.seq_num >= tail.seq_num) arrivals.push(performance.now());
  };
  live.addEventListener('error', event => {
    if (event.data) {
      const told = JSON.parse(event.data);
      say(`${told.code}: ${told.message}`, true);
      if (!told.retryable) live.close();
    }
    at('state').textContent = live.readyState === EventSource.CLOSED ? 'ended' : 'connecting';
  });
}

async function look() {
  if (key === null) return;
  const stream = await ask('GET', streamPath(bucket, key));
  at('tail').textContent = stream.tail.seq_num;
  at('trim-point').textContent = stream.trim_point;
  at('bytes').textContent = stream.bytes;
  at('class').textContent = stream.class;
  const SECONDS = 5, since = performance.now() - SECONDS * 1000;
  arrivals = arrivals.filter(when => when >= since);
  at('rate').textContent = (arrivals.length / SECONDS).toFixed(1);
}

at('make-bucket').onsubmit = doing(async () => {
  const name = at('bucket-name').value;
  await ask('POST', bucketPath(name), {create_stream_on_append: true, default_class: at('bucket-class').value});
  at('make-bucket').reset();
  await listBuckets();
  await chooseBucket(name);
});

at('open-stream').onsubmit = doing(async () => {
  if (bucket === null) throw new Error('choose a bucket first');
  const name = at('stream-key').value;
  await ask('GET', streamPath(bucket, name)).catch(() => ask('POST', streamPath(bucket, name), {}));
  at('open-stream').reset();
  await listStreams();
  await chooseStream(name);
});

at('append').onsubmit = doing(async () => {
  if (key === null) throw new Error('choose a stream first');
  const ack = await ask('POST', `${streamPath(bucket, key)}/records`, {records: [{body: at('body').value}]});
  at('append').reset();
  say(`${ack.start.seq_num} is durable (${ack.class})`);
  await look();
});

at('trim').onsubmit = doing(async () => {
  if (key === null) throw new Error('choose a stream first');
  const told = await ask('POST', `${streamPath(bucket, key)}/trim`, {seq_num: Number(at('trim-to').value)});
  at('trim').reset();
  say(`trimmed to ${told.trim_point}`);
  await look();
});

doing(async () => {
  const [named, opened] = location.hash.slice(1).split('/').map(decodeURIComponent);
  await listBuckets();
  if (named) await chooseBucket(named);
  if (opened) await chooseStream(opened);
})();
setInterval(() => look().catch(() => {}), 1000);
