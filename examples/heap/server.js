// A service that forgets nobody: each request leaves a listener behind, whose closure keeps the
// session of the request.
//
// usage: node --heapsnapshot-signal=SIGUSR2 server.js PORT
'use strict';
const { EventEmitter } = require('node:events');
const { createServer } = require('node:http');

class Session {
    constructor(user) {
        this.user = user;
        this.history = new Array(100).fill(0.5);
    }
    save() {
        this.history.push(1);
    }
}

const shutdown = new EventEmitter();
shutdown.setMaxListeners(0);

const server = createServer((request, response) => {
    const session = new Session(request.url.slice(1));
    shutdown.once('now', () => session.save());
    response.end(`hello, ${session.user}\n`);
});
server.listen(Number(process.argv[2]), '127.0.0.1', () => console.log('listening'));
