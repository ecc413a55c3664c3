// Lists the session's files, with a link to the answer of each verb.
"use strict";

const state = document.getElementById("state");

function link(file, verb) {
  const a = document.createElement("a");
  a.href = `api/ask/${verb}?file=${file.id}`;
  a.textContent = verb;
  return a;
}

function item(file) {
  const li = document.createElement("li");
  const name = document.createElement("strong");
  name.textContent = file.name;
  const about = document.createElement("div");
  about.textContent = `${file.kind}, ${file.bytes.toLocaleString("en")} bytes: ${file.path}`;
  const verbs = document.createElement("div");
  verbs.append(...file.verbs.map((verb) => link(file, verb)));
  li.append(name, about, verbs);
  return li;
}

async function main() {
  const response = await fetch("api/session");
  if (!response.ok) {
    throw new Error(`the server answers ${response.status}`);
  }
  const session = await response.json();
  document.getElementById("files").append(...session.files.map(item));
  const count = session.files.length;
  state.textContent = `${count} ${count === 1 ? "file" : "files"}. Each link is the answer of a verb, as JSON.`;
}

main().catch((error) => {
  state.textContent = `The files cannot be listed: ${error.message}. Is heapledger still running?`;
});
