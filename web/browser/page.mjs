// Looks at the page in Chromium, as people do: with answers of real recordings that are kept in
// web/answers. The third file is of a program with scopes, tasks and heaps. `web/browser-test` runs
// this.

import assert from 'node:assert/strict';
import {spawn} from 'node:child_process';
import {mkdirSync, readFileSync} from 'node:fs';
import test, {after, before} from 'node:test';
import {createRequire} from 'node:module';
import {fileURLToPath} from 'node:url';
import {chromium} from 'playwright-core';

const require = createRequire(import.meta.url);
const AXE = readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8');
const WEB = fileURLToPath(new URL('..', import.meta.url));
const PICTURES = process.env.PAGE_PICTURES;
/** Long, for machines that do much else. */
const PATIENCE = 120_000;

let browser;
before(async () => {
  browser = await chromium.launch({executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox']});
  if (PICTURES !== undefined) mkdirSync(PICTURES, {recursive: true});
});
after(() => browser?.close());

/** Starts the server for looking at the page, with the kept answers alone. */
async function serve(environment = {}) {
  const server = spawn(process.execPath, [`${WEB}/dev-server`, process.env.HEAPLEDGER ?? 'none', 'indexer.hl', 'indexer2.hl', 'served.hl'], {
    env: {...process.env, DEV_ANSWERS: `${WEB}/answers`, ...environment}, stdio: ['ignore', 'pipe', 'inherit'],
  });
  const address = await new Promise((resolve, reject) => {
    server.stdout.once('data', (data) => resolve(String(data).trim()));
    server.once('exit', () => reject(new Error('the server did not start')));
  });
  return {address, stop: () => new Promise((resolve) => { server.once('exit', resolve); server.kill(); })};
}

/** Opens a view and waits for its answers. Errors of scripts fail the test. */
async function open(address, hash, options = {}) {
  const page = await browser.newPage({viewport: {width: 1400, height: 860}, ...options});
  page.setDefaultTimeout(PATIENCE);
  page.errors = [];
  page.on('pageerror', (error) => page.errors.push(error.message));
  page.on('console', (message) => message.type() === 'error' && !/Failed to load resource/.test(message.text()) && page.errors.push(message.text()));
  await page.goto(address + hash);
  await settled(page);
  return page;
}

const settled = (page) => page.waitForFunction(() => document.querySelector('main')?.children.length > 0
  && document.querySelector('main > .progress') === null && document.querySelector('[data-waiting]') === null);

const answerOf = (page, question) => page.evaluate((question) => fetch(`api/ask/${question}`).then((answer) => answer.json()), question);

const VIEWS = ['summary', 'timeline', 'flame', 'tree', 'table', 'treemap', 'leaks', 'temporary', 'reallocations', 'sizes', 'blocks', 'growth', 'advice', 'diff', 'answers'];

test('each view is there, can be read by all, and fits 1,000 pixels, in light and in dark', async () => {
  const {address, stop} = await serve();
  for (const view of VIEWS) {
    for (const colorScheme of ['light', 'dark']) {
      const page = await open(address, `#/${view}?file=0`, {colorScheme, viewport: {width: 1000, height: 800}});
      await page.evaluate(AXE);
      const violations = await page.evaluate(() => axe.run().then(({violations}) => violations.map(({id, nodes}) => `${id}: ${nodes.map(({html}) => html.slice(0, 200)).join(' ')}`)));
      assert.deepEqual(violations, [], `${view} ${colorScheme}`);
      assert.deepEqual(page.errors, [], `${view} ${colorScheme}`);
      assert.equal(await page.locator('.failure').count(), 0, `${view} ${colorScheme}: ${await page.locator('main').innerText()}`);
      assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), `${view} is wider than the window`);
      if (PICTURES !== undefined) await page.screenshot({path: `${PICTURES}/${view}-${colorScheme}.png`});
      await page.close();
    }
  }
  await stop();
});

const shownRows = (page) => page.locator('.grid .line:not(.heads)').evaluateAll((lines) => lines.map((line) => [...line.children].map((cell) => cell.querySelector('span').innerText)));
const BY = ['owner', 'function', 'line', 'file', 'module', 'type', 'site', 'stack', 'context', 'scope', 'task', 'heap', 'thread', 'process', 'size'];

test('rows have the names of what they are summed up by, and “Only this” chooses a row and no more', async () => {
  const {address, stop} = await serve();
  for (const by of BY) {
    const page = await open(address, `#/table?file=2&total=&by=${by}`);
    assert.deepEqual(await page.locator('.failure').allInnerTexts(), [], by);
    const names = (await shownRows(page)).map((cells) => cells.at(-1));
    const {rows} = await answerOf(page, `top?file=2&total=&by=${by}&rows=100`);
    assert.equal(names.length, rows.length, by);
    assert.ok(names.every((name) => name !== '' && !/^(–|\(unknown\))$|\[object/.test(name)), `${by}: ${names}`);
    // Lines of one function have one name, and differ in the place behind it.
    if (by === 'site' || by === 'stack' || by === 'line') assert.deepEqual(names, rows.map(({owner, function: name}) => owner?.function ?? name), by);
    else assert.equal(new Set(names).size, names.length, `${by}: ${names}`);
    if (by === 'task') assert.deepEqual(names, ['request{route=/a}', 'request{route=/a/b}', '(no task)']);
    if (by === 'heap') assert.deepEqual(names.toSorted(), ['(no heap)', 'img', 'img2']);
    for (const [at, {bytes, blocks}] of rows.slice(0, 4).entries()) {
      await page.locator('.grid .line:not(.heads)').nth(at).click();
      await page.locator('.details').waitFor();
      const button = page.getByRole('button', {name: 'Only this'});
      if (await button.count() === 0) continue;
      assert.ok(!['site', 'stack', 'line', 'file'].includes(by), by);
      await button.click();
      await page.locator('.chips button').nth(1).waitFor();
      await settled(page);
      const chosen = (await page.locator('.total').innerText()).split(';')[0];
      assert.match(chosen, new RegExp(`in ${blocks.toLocaleString('en')} blocks`), `${by} ${names[at]}`);
      const {total} = await answerOf(page, `top?${(await page.evaluate(() => location.hash)).split('?')[1]}&rows=100`.replace(/&by=(\w+)(.*)&rows/, '$2&by=$1&rows'));
      assert.deepEqual([total?.bytes, total?.blocks], [bytes, blocks], `${by} ${names[at]}`);
      await page.goBack();
      await page.locator('.chips button').nth(1).waitFor({state: 'detached'});
      await settled(page);
    }
    await page.close();
  }
  await stop();
});

test('the summary of a selection has its own figures', async () => {
  const {address, stop} = await serve();
  for (const [question, labels] of [
    ['file=2&function=%2F%5Eparse%24%2F', ['live at the peak', 'live at the end', 'allocated']], ['file=2&at=peak', ['live at the peak', 'allocated']],
    ['file=2&thread=served', ['live at the peak', 'live at the end', 'allocated']],
  ]) {
    const page = await open(address, `#/summary?${question}`);
    await page.keyboard.press('u');
    await page.keyboard.press('u');
    const shown = await page.locator('.figure').evaluateAll((figures) => figures.map((figure) => [figure.querySelector('dt').innerText, figure.querySelector('b').innerText.replace(/[^\d]/g, '')]));
    const {live, peak, allocated} = await answerOf(page, `summary?${question}`);
    const figures = {'live at the peak': peak.bytes, 'live at the end': live.bytes, allocated: allocated.bytes};
    assert.deepEqual(shown, labels.map((label) => [label, String(figures[label])]), question);
    assert.ok(!(await page.locator('main').innerText()).includes('no totals'), question);
    assert.deepEqual(await page.locator('.failure').allInnerTexts(), [], question);
    await page.close();
  }
  const page = await open(address, '#/summary?file=2&total=');
  assert.match(await page.locator('.unused').innerText(), /Not used here.*all that was ever allocated/);
  await page.close();
  await stop();
});

/** Opens a view of files that have only some verbs. */
async function openWith(address, hash, verbs) {
  const page = await browser.newPage();
  page.setDefaultTimeout(PATIENCE);
  page.asked = [];
  page.on('request', (request) => { const verb = /api\/ask\/([^?]*)/.exec(request.url())?.[1]; if (verb !== undefined) page.asked.push(verb); });
  await page.route(/\/api\/session/, async (route) => {
    const answer = await route.fetch();
    const session = await answer.json();
    await route.fulfill({response: answer, json: {...session, files: session.files.map((file) => ({...file, verbs}))}});
  });
  await page.goto(address + hash);
  await settled(page);
  return page;
}

test('only what can be asked about a file is asked and offered', async () => {
  const {address, stop} = await serve();
  const summary = await openWith(address, '#/summary?file=0', ['summary', 'top', 'tree', 'info']);
  assert.deepEqual([...new Set(summary.asked)].sort(), ['summary', 'top']);
  assert.deepEqual(await summary.locator('.next li').allInnerTexts().then((texts) => texts.length), 2);
  await summary.close();
  const answers = await openWith(address, '#/answers?file=0&verb=reports/diff', ['summary', 'callers', 'callees', 'heap/node', 'heap/paths', 'reports/diff']);
  assert.deepEqual(await answers.getByLabel('verb').locator('option').allInnerTexts(), ['summary', 'reports diff']);
  await answers.getByText('reports diff compares two files.').waitFor();
  assert.deepEqual(answers.asked, []);
  await answers.getByLabel('with').selectOption('1');
  await answers.waitForRequest(/api\/ask\/reports\/diff\?file=0&file=1$/).catch(() => undefined);
  assert.deepEqual(new Set(answers.asked), new Set(['reports/diff']));
  await answers.close();
  await stop();
});

test('two files or moments are compared in the flame graph, too', async () => {
  const {address, stop} = await serve();
  const page = await open(address, '#/diff?file=2&at=peak&at=end');
  await page.getByRole('button', {name: 'As a flame graph'}).click();
  await page.getByText('Growth from').waitFor();
  await settled(page);
  assert.equal(await page.locator('.unused').innerText(), 'Growth from served.hl, at the peak to served.hl, at the end. Show the latter alone');
  await page.locator('.flame-details').getByText('growth', {exact: true}).waitFor();
  if (PICTURES !== undefined) await page.screenshot({path: `${PICTURES}/flame-growth.png`});
  assert.deepEqual(page.errors, []);
  await page.getByRole('button', {name: 'Show the latter alone'}).click();
  await page.waitForURL((url) => url.hash.includes('at=end') && !url.hash.includes('at=peak'));
  await settled(page);
  assert.equal(await page.locator('.unused').count(), 0);
  await page.evaluate(() => (location.hash = '#/flame?file=0&file=2'));
  await page.getByText('Growth from').waitFor();
  await settled(page);
  assert.deepEqual(await page.locator('.failure').allInnerTexts(), []);
  await page.close();
  await stop();
});

test('a page that is not seen does not keep a connection', async () => {
  const {address, stop} = await serve();
  const page = await browser.newPage();
  page.setDefaultTimeout(PATIENCE);
  await page.addInitScript(() => {
    window.sources = [];
    window.EventSource = class extends EventSource { constructor(url) { super(url); window.sources.push(this); } };
  });
  await page.goto(`${address}#/sizes?file=0`);
  await settled(page);
  const show = (isHidden) => page.evaluate((isHidden) => {
    Object.defineProperty(document, 'hidden', {value: isHidden, configurable: true});
    document.dispatchEvent(new Event('visibilitychange'));
    return window.sources.map(({readyState}) => readyState === EventSource.CLOSED);
  }, isHidden);
  assert.deepEqual(await show(true), [true]);
  const looked = page.waitForRequest(/api\/session/);
  assert.deepEqual(await show(false), [true, false]);
  await looked;
  await page.evaluate((long) => (location.hash = long), `#/sizes?file=0&function=${'a'.repeat(40_000)}`);
  await page.getByText('The address is too long').waitFor();
  await page.close();
  await stop();
});

test("figures are those of the verbs, and a click on units shows plain bytes", async () => {
  const {address, stop} = await serve();
  const page = await open(address, '#/table?file=0');
  const {rows, total} = await answerOf(page, 'top?file=0&by=owner&rows=100');
  await page.keyboard.press('u');
  await page.keyboard.press('u');
  const shown = await page.locator('.grid .line:not(.heads)').evaluateAll((lines) => lines.map((line) => [...line.children].map((cell) => cell.querySelector('span').innerText)));
  const number = (text) => Number(text.replaceAll(',', ''));
  assert.deepEqual(shown.map(([bytes, , blocks]) => [number(bytes), number(blocks)]), rows.map(({bytes, blocks}) => [bytes, blocks]));
  assert.deepEqual(shown.map((cells) => cells.at(-1)), rows.map(({owner}) => owner.function));
  assert.ok((await page.locator('.total').innerText()).startsWith(`${total.bytes.toLocaleString('en')} in ${total.blocks.toLocaleString('en')} blocks`));
  await page.close();
  await stop();
});

test('the address is the state: conditions are chips, back and forward work, a filter is no step', async () => {
  const {address, stop} = await serve();
  const page = await open(address, '#/table?file=0');
  await page.locator('.grid').focus();
  await page.keyboard.press('Enter');
  await page.getByRole('button', {name: 'Only this'}).click();
  await page.waitForURL(/allocated-by=/);
  assert.equal(await page.locator('.chips button').count(), 1);
  await settled(page);
  await page.locator('.chips button').click();
  assert.equal(await page.locator('.chips button').count(), 0);
  await page.goBack();
  await page.locator('.chips button').waitFor();
  await page.goBack();
  await page.waitForFunction(() => !location.hash.includes('allocated-by'));
  await page.keyboard.press('/');
  await page.keyboard.type('token');
  await page.waitForURL(/filter=token/);
  await page.waitForFunction(() => document.querySelectorAll('.grid .line:not(.heads)').length === 1);
  await page.keyboard.press('Escape');
  await page.keyboard.press('[');
  await page.waitForURL(/#\/tree/);
  await page.keyboard.press(']');
  // The view has the settings that it had.
  await page.waitForURL(/#\/table.*filter=token/);
  await page.close();
  await stop();
});

test('a tree is walked through by keys', async () => {
  const {address, stop} = await serve();
  const page = await open(address, '#/tree?file=0');
  const grid = page.locator('[role=treegrid]');
  await grid.focus();
  const active = () => page.evaluate(() => {
    const row = document.getElementById(document.querySelector('[role=treegrid]').getAttribute('aria-activedescendant'));
    return [row.getAttribute('aria-level'), row.getAttribute('aria-expanded'), row.querySelector('.name').innerText];
  });
  const [level, isOpen, name] = await active();
  assert.deepEqual([level, isOpen], ['1', 'true']);
  await page.keyboard.press('ArrowLeft');
  assert.deepEqual(await active(), ['1', 'false', name]);
  await page.keyboard.press('ArrowRight');
  await page.keyboard.press('ArrowRight');
  assert.equal((await active())[0], '2');
  await page.keyboard.press('Enter');
  await page.locator('.details').waitFor();
  await page.keyboard.press('Escape');
  assert.equal(await page.locator('.details').count(), 0);
  await page.keyboard.press('?');
  await page.getByRole('dialog').waitFor();
  await page.keyboard.press('Escape');
  await page.close();
  await stop();
});

test('a range over the timeline leads to the questions about it', async () => {
  const {address, stop} = await serve();
  const page = await open(address, '#/timeline?file=0');
  const box = await page.locator('.u-over').boundingBox();
  await page.mouse.move(box.x + box.width * 0.3, box.y + 50);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width * 0.6, box.y + 60, {steps: 5});
  await page.mouse.up();
  await page.getByRole('button', {name: 'allocated within', exact: true}).waitFor();
  const range = new URLSearchParams((await page.evaluate(() => location.hash)).split('?')[1]).get('range');
  assert.match(range, /^[\d.]+s-[\d.]+s$/);
  await page.getByRole('button', {name: 'allocated within', exact: true}).click();
  const hash = await page.evaluate(() => location.hash);
  const parameters = new URLSearchParams(hash.split('?')[1]);
  assert.deepEqual([parameters.get('during'), parameters.get('total')], [range, '']);
  await page.close();
  await stop();
});

test('pictures are saved as PNG', async () => {
  const {address, stop} = await serve();
  for (const view of ['timeline', 'treemap']) {
    const page = await open(address, `#/${view}?file=0`);
    const saving = page.waitForEvent('download');
    await page.getByRole('button', {name: 'Save as PNG'}).click();
    const download = await saving;
    assert.equal(download.suggestedFilename(), `${view}.png`);
    const bytes = readFileSync(await download.path());
    assert.equal(bytes.subarray(1, 4).toString(), 'PNG');
    assert.ok(bytes.length > 5000, `${bytes.length} bytes`);
    await page.close();
  }
  await stop();
});

test('names in files are text, whatever they contain', async () => {
  const {address, stop} = await serve();
  const hostile = '<img src=x onerror="window.ran=1"><script>window.ran=1</script>${ran}';
  const page = await browser.newPage();
  page.setDefaultTimeout(PATIENCE);
  const NAMES = /^(function|full|module|file|type|short|name|command|sentence|proof|path|why|hint|message)$/;
  const inside = (value) => Array.isArray(value) ? value.map(inside) : value === null || typeof value !== 'object' ? value
    : Object.fromEntries(Object.entries(value).map(([key, one]) => [key, !NAMES.test(key) ? inside(one) : Array.isArray(one) ? one.map(() => hostile) : typeof one === 'string' ? hostile : one]));
  await page.route(/\/api\/(ask|session)/, async (route) => {
    const answer = await route.fetch();
    await route.fulfill({response: answer, json: inside(await answer.json())});
  });
  for (const view of VIEWS.filter((one) => one !== 'flame')) {
    await page.goto(`${address}#/${view}?file=0&filter=${view === 'tree' || view === 'table' ? encodeURIComponent('<img') : ''}`);
    await page.reload();
    await settled(page);
    assert.equal(await page.evaluate(() => window.ran), undefined, view);
    assert.equal(await page.locator('main img, main script').count(), 0, view);
  }
  assert.ok((await page.locator('body').innerText()).includes('<img src=x'));
  await page.close();
  await stop();
});

test('a slow answer shows how far it is, and is cancelled when another is asked', async () => {
  const {address, stop} = await serve({DEV_SLOW: '600'});
  const page = await browser.newPage();
  page.setDefaultTimeout(PATIENCE);
  const cancelled = page.waitForRequest((request) => request.method() === 'DELETE' && /api\/job\//.test(request.url()));
  await page.goto(`${address}#/table?file=0`);
  await page.locator('.progress progress').waitFor();
  await page.waitForFunction(() => /%/.test(document.querySelector('.progress')?.innerText ?? ''));
  await page.evaluate(() => (location.hash = '#/sizes?file=0'));
  await cancelled;
  await page.close();
  await stop();
});

test('errors are said as the command says them, and so is a server that is gone', async () => {
  const {address, stop} = await serve();
  const page = await open(address, '#/table?file=0&function=zzz');
  await page.locator('.failure').waitFor();
  assert.match(await page.locator('.failure').innerText(), /error\[HL0090\]: no block of the recording fits: function zzz[^]*hint: names are listed by/);
  await stop();
  await page.locator('.banner').waitFor();
  assert.match(await page.locator('.banner').first().innerText(), /The server is gone.*heapledger open indexer\.hl/);
  await page.getByRole('button', {name: 'Sizes'}).click();
  await page.getByText('the server is gone', {exact: false}).last().waitFor();
  assert.match(await page.locator('.failure').innerText(), /error: the server is gone/);
  await page.close();
});
