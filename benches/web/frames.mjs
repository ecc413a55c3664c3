// Serves the page of `frames` to browsers without a window, and prints what they measured.

import {spawn} from 'node:child_process';
import {mkdtempSync, readFileSync, rmSync, writeFileSync} from 'node:fs';
import {createServer} from 'node:http';
import {tmpdir} from 'node:os';
import {join} from 'node:path';

const [work, ...given] = process.argv.slice(2);
/** Takes an option from the arguments, and returns true if it was given. */
function takes(option) {
  const at = given.indexOf(option);
  if (at >= 0) given.splice(at, 1);
  return at >= 0;
}
const isCheck = takes('--check');
/** The pixels of the screen for each pixel of the page, in each direction. */
const ratio = takes('--fine') ? 2 : 1;
const browsers = given.length > 0 ? given : ['chromium', 'firefox-esr'];
/** The largest mean time between frames of a graph of 100,000, in milliseconds, and its size. */
const MEAN_MAX = 20;
const CHECKED_NODES_MAX = 200_000;
/** A browser that has not answered by then has failed, in milliseconds. */
const PATIENCE = 300_000;

const PAGE = '<!doctype html><meta charset="utf-8"><title>frames</title><body><script src="frames.js"></script>';
let measured;
const server = createServer((request, response) => {
  if (request.method === 'POST') {
    let body = '';
    request.on('data', (part) => (body += part));
    request.on('end', () => {
      response.end();
      measured(JSON.parse(body));
    });
  } else if (request.url === '/frames.js') {
    response.setHeader('Content-Type', 'text/javascript').end(readFileSync(join(work, 'frames.js')));
  } else {
    response.setHeader('Content-Type', 'text/html').end(PAGE);
  }
}).listen(0, '127.0.0.1');
await new Promise((resolve) => server.on('listening', resolve));
const address = `http://127.0.0.1:${server.address().port}/`;

let isSlow = false;
for (const browser of browsers) {
  const profile = mkdtempSync(join(tmpdir(), 'frames-'));
  const isFirefox = browser.includes('firefox');
  if (isFirefox) {
    const preferences = {'browser.shell.checkDefaultBrowser': false, 'layout.css.devPixelsPerPx': `${ratio}.0`};
    const lines = Object.entries(preferences).map(([name, value]) => `user_pref("${name}", ${JSON.stringify(value)});\n`);
    writeFileSync(join(profile, 'user.js'), lines.join(''));
  }
  const options = isFirefox
    ? ['--headless', '--width', '1700', '--height', '1000', '--profile', profile, '--no-remote', address]
    : ['--headless=new', '--no-sandbox', '--no-first-run', '--window-size=1700,1000',
        `--force-device-scale-factor=${ratio}`, `--user-data-dir=${profile}`, address];
  const child = spawn(browser, options, {stdio: 'ignore', detached: true});
  const answer = await Promise.race([
    new Promise((resolve) => (measured = resolve)),
    new Promise((resolve) => child.on('error', (error) => resolve({error: `it could not be started: ${error.message}`}))),
    new Promise((resolve) => setTimeout(resolve, PATIENCE, {error: 'it did not answer'}).unref()),
  ]);
  const ended = new Promise((resolve) => (child.pid && child.exitCode === null ? child.on('exit', resolve) : resolve()));
  // A browser is several processes, of one group.
  if (child.pid) process.kill(-child.pid);
  await ended;
  rmSync(profile, {recursive: true, force: true, maxRetries: 20});
  if (answer.error) {
    console.error(`${browser}: ${answer.error}`);
    isSlow = true;
    continue;
  }
  console.log(`\n${browser}, milliseconds\n`);
  console.log('| graph | nodes | made in | first picture | from frame to frame | the 9th worst | drawing |');
  console.log('|---|---:|---:|---:|---:|---:|---:|');
  for (const {shape, nodes, made, first, mean, slow, drawing} of answer) {
    const figures = [made.toFixed(0), first.toFixed(0), mean.toFixed(1), slow.toFixed(1), drawing.toFixed(1)];
    console.log(`| ${[shape, nodes.toLocaleString('en'), ...figures].join(' | ')} |`);
    if (nodes < CHECKED_NODES_MAX && mean > MEAN_MAX) isSlow = true;
  }
}
server.close();
if (isCheck && isSlow) {
  console.error('the flame graph is too slow');
  process.exit(1);
}
