// Requests to the server. All go to this page's own address; errors have the server's own words.

async function ask(path, options = {}) {
  let response;
  try {
    response = await fetch(path, { cache: "no-store", ...options });
  } catch {
    throw new Error("The program does not answer: it may have ended.");
  }
  if (!response.ok) {
    throw new Error((await response.text()).trim() || `The server answered with status ${response.status}.`);
  }
  return response;
}

const post = (path, body, type) => ask(path, { method: "POST", headers: { "Content-Type": type }, body });
const postJson = (path, value) => post(path, JSON.stringify(value), "application/json");
const query = (parameters) => new URLSearchParams(parameters).toString();

export const state = async () => (await ask("state")).json();
export const measure = async (anonymous) => (await postJson(`measure?${query({ anonymous: +anonymous })}`, {})).json();
export const minimise = async (anonymous) => (await postJson(`minimise?${query({ anonymous: +anonymous })}`, {})).json();
export const load = async (file) =>
  (await post(`load?${query({ name: file.name })}`, file, "application/octet-stream")).json();
export const rows = async (view, from, count) => (await postJson("rows", { ...view, from, count })).json();
export const text = async (view) => (await postJson("text", view)).text();
export const look = async (anonymous) => (await postJson(`look?${query({ anonymous: +anonymous })}`, {})).json();
export const records = async (view, from, count) => (await postJson("records", { ...view, from, count })).json();
export const record = async (view, row) => (await postJson("record", { ...view, from: row })).json();
export const darkText = async (view) => (await postJson("dark-text", view)).text();
export const log = (number) => `dmd.json.gz?${query({ log: number })}`;
export const allocator = async () => (await ask("allocator")).text();
export const file = (measurement) => `reports.json.gz?${query({ measurement })}`;
