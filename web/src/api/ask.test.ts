import assert from 'node:assert/strict';
import {createServer, type RequestListener} from 'node:http';
import type {AddressInfo} from 'node:net';
import test from 'node:test';

import {ask, AskError, cancelAll, questionAddress} from './ask';

/** Runs `body` with `fetch` going to a server that answers as `listener` does. */
async function serving(listener: RequestListener, body: (stop: () => void) => Promise<void>): Promise<void> {
  const server = createServer(listener);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const base = `http://127.0.0.1:${(server.address() as AddressInfo).port}/token/`;
  const before = globalThis.fetch;
  globalThis.fetch = (address, init) => before(new URL(String(address), base), init);
  const stop = (): void => {
    server.closeAllConnections();
    server.close();
  };
  try {
    await body(stop);
  } finally {
    globalThis.fetch = before;
    stop();
  }
}

test('the address of a question holds its options', () => {
  assert.equal(questionAddress('heap/census', [['file', '0'], ['function', 'a&b']]), 'api/ask/heap/census?file=0&function=a%26b');
});

test('an answer comes with its notes', async () => {
  await serving((_, response) => {
    response.setHeader('heapledger-notes', '["hint: install symbols"]').end('{"total":1}');
  }, async () => {
    const {value, notes} = await ask<{total: number}>('top', [], new AbortController().signal);
    assert.deepEqual([value, notes], [{total: 1}, ['hint: install symbols']]);
  });
});

test('a job is asked about until it is done', async () => {
  const asked: string[] = [];
  await serving((request, response) => {
    asked.push(request.url ?? '');
    if (asked.length < 4) response.writeHead(202).end(JSON.stringify({job: '7', progress: asked.length === 1 ? null : asked.length / 4}));
    else response.end('{"done":true}');
  }, async () => {
    const seen: (number | null)[] = [];
    const {value} = await ask('growth', [['file', '0']], new AbortController().signal, (part) => seen.push(part));
    assert.deepEqual(value, {done: true});
    assert.deepEqual(seen, [null, 0.5, 0.75]);
    assert.deepEqual(asked, ['/token/api/ask/growth?file=0', ...Array(3).fill('/token/api/job/7') as string[]]);
  });
});

/** Runs `body` with a server whose jobs never end; returns the paths of the jobs it cancelled. */
async function cancelling(body: (cancelled: () => Promise<string>) => Promise<void>): Promise<void> {
  let tell = (_: string): void => undefined;
  const cancelled = new Promise<string>((resolve) => (tell = resolve));
  await serving((request, response) => {
    if (request.method === 'DELETE') {
      tell(request.url ?? '');
      response.end();
    } else {
      response.writeHead(202).end('{"job":"7","progress":0.1}');
    }
  }, () => body(() => cancelled));
}

test('a job that nobody waits for any more is cancelled', async () => {
  await cancelling(async (cancelled) => {
    const stop = new AbortController();
    await assert.rejects(ask('growth', [], stop.signal, () => stop.abort()), {name: 'AbortError'});
    assert.equal(await cancelled(), '/token/api/job/7');
  });
});

test('a question that is dropped before its answer is there is cancelled, too', async () => {
  await cancelling(async (cancelled) => {
    const stop = new AbortController();
    const answer = ask('growth', [], stop.signal);
    stop.abort();
    await assert.rejects(answer, {name: 'AbortError'});
    assert.equal(await cancelled(), '/token/api/job/7');
  });
});

test('a page that is closed cancels its jobs', async () => {
  await cancelling(async (cancelled) => {
    const stop = new AbortController();
    let isSeen = (): void => undefined;
    const seen = new Promise<void>((resolve) => (isSeen = resolve));
    const answer = ask('growth', [], stop.signal, isSeen).catch(() => undefined);
    await seen;
    cancelAll();
    assert.equal(await cancelled(), '/token/api/job/7');
    stop.abort();
    await answer;
  });
});

test("errors are the command's", async () => {
  await serving((_, response) => {
    response.writeHead(400).end('{"error":{"code":"HL0090","message":"no block fits","causes":["function zzz"],"hint":"heapledger tree"}}');
  }, async () => {
    const error: AskError = await ask('top', [], new AbortController().signal).then(() => assert.fail('no error'), (error: AskError) => error);
    assert.deepEqual([error.code, error.message, error.causes, error.hint, error.isGone], ['HL0090', 'no block fits', ['function zzz'], 'heapledger tree', false]);
  });
  await serving((_, response) => response.writeHead(500).end('<b>oops</b>'), async () => {
    await assert.rejects(ask('top', [], new AbortController().signal), {message: 'the server answered 500', causes: ['<b>oops</b>']});
  });
});

test('a server that is gone is said to be gone', async () => {
  await serving((_, response) => response.end('{}'), async (stop) => {
    stop();
    await assert.rejects(ask('top', [], new AbortController().signal), {message: 'the server is gone', isGone: true});
  });
});
