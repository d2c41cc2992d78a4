"use strict";

const find = (id) => document.getElementById(id);

/** Make an element: attributes (functions become listeners), then children (text stays text, never markup). */
function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(name, value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false) made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

/** Ask the server; `path` is relative to this page. Gives status, text, and value when the text is JSON. */
async function ask(method, path, body) {
  const headers = {};
  const name = find("key-name").value.trim();
  if (name) headers[name] = find("key-value").value;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const began = performance.now();
  const response = await fetch(path.replace(/^\//, ""), { method, headers, body, cache: "no-store" });
  const text = await response.text();
  const answer = { ok: response.ok, status: response.status, text, value: undefined, ms: performance.now() - began };
  try {
    answer.value = JSON.parse(text);
  } catch {
    answer.value = undefined; // an empty or a non-JSON answer is shown as it is
  }
  if (response.status === 401 || response.status === 403) find("key").open = true;
  return answer;
}

function problem(answer) {
  return answer.value?.error ?? `the server answered ${answer.status}`;
}

async function show(place, work) {
  try {
    const answer = await work();
    // JavaScript rounds whole numbers beyond 2^53: with long ones in it, an answer is shown as it came.
    const isExact = answer.value !== undefined && !/\d{16}/.test(answer.text);
    const body = isExact ? JSON.stringify(answer.value, null, 2) : answer.text;
    const line = element("p", { class: answer.ok ? "good" : "problem" }, `Status ${answer.status}, ${answer.ms.toFixed(1)} ms`);
    place.replaceChildren(line, element("pre", { tabindex: "0" }, body || "(empty body)"));
  } catch (error) {
    place.replaceChildren(element("p", { class: "problem" }, `No answer: ${error.message}`));
  }
}

/** Run `work` on submit, with the form's buttons off meanwhile so that nothing is sent twice. */
function onSubmit(form, work) {
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const buttons = [...form.querySelectorAll("button")];
    buttons.forEach((button) => (button.disabled = true));
    try {
      await work();
    } finally {
      buttons.forEach((button) => (button.disabled = false));
    }
  });
}

// --- server and models

async function showServer() {
  const place = find("server");
  try {
    const [server, ready] = await Promise.all([ask("GET", "/v2"), ask("GET", "/v2/health/ready")]);
    const state = ready.ok ? "ready" : "not ready";
    place.textContent = server.ok ? `${server.value.name} ${server.value.version}, ${state}` : `${state}; ${problem(server)}`;
  } catch (error) {
    place.textContent = `No answer: ${error.message}`;
  }
}

async function showModels() {
  const note = find("models-note");
  const rows = find("models-rows");
  try {
    const index = await ask("POST", "/v2/repository/index", "{}");
    const entries = index.ok ? index.value : [];
    rows.replaceChildren(...entries.map(modelRow));
    find("models-scroll").hidden = entries.length === 0;
    note.textContent = index.ok ? `${entries.length} in the repository` : problem(index);
    const first = entries.find((entry) => entry.state === "READY");
    if (first && !find("infer-model").value) await useModel(first);
  } catch (error) {
    note.textContent = `No answer: ${error.message}`;
  }
}

function modelRow(entry) {
  const choose = async () => {
    await useModel(entry);
    find("infer-body").focus();
  };
  const attributes = { type: "button", "aria-label": `Use ${entry.name} version ${entry.version ?? "latest"}`, click: choose };
  return element(
    "tr",
    {},
    element("th", { scope: "row" }, entry.name),
    element("td", {}, entry.version ?? "–"),
    element("td", { class: entry.state === "READY" ? "good" : "text" }, entry.state ?? "not loaded"),
    element("td", {}, entry.reason ?? ""),
    element("td", {}, entry.state === "READY" ? element("button", attributes, "Use") : ""),
  );
}

// --- infer

function modelPath() {
  const version = find("infer-version").value.trim();
  return `/v2/models/${encodeURIComponent(find("infer-model").value)}${version ? `/versions/${version}` : ""}`;
}

async function useModel(entry) {
  find("infer-model").value = entry.name;
  find("infer-version").value = entry.version ?? "";
  await fillExample();
}

async function fillExample() {
  const place = find("infer-result");
  try {
    const metadata = await ask("GET", modelPath());
    if (!metadata.ok) throw new Error(problem(metadata));
    find("infer-body").value = exampleText(metadata.value.inputs.map(exampleInput));
    place.replaceChildren();
  } catch (error) {
    place.replaceChildren(element("p", { class: "problem" }, `No example: ${error.message}`));
  }
}

/** An input with the smallest shape that fits and at most 4096 values, which a person then changes. */
function exampleInput(input) {
  const shape = input.shape.map((size) => (size < 0 ? 1 : size));
  const count = Math.min(shape.reduce((product, size) => product * size, 1), 4096);
  const value = { BYTES: "text", BOOL: false }[input.datatype] ?? 0;
  return { name: input.name, shape, datatype: input.datatype, data: new Array(count).fill(value) };
}

/** JSON with one line for each input: nobody wants a line for each number. */
function exampleText(inputs) {
  return `{\n  "inputs": [\n${inputs.map((input) => `    ${JSON.stringify(input)}`).join(",\n")}\n  ]\n}`;
}

// --- endpoints and schemas

function showEndpoints(description) {
  const groups = new Map();
  for (const [path, item] of Object.entries(description.paths)) {
    for (const method of ["get", "post", "delete"]) {
      if (!item[method]) continue;
      const tag = item[method].tags[0];
      groups.set(tag, [...(groups.get(tag) ?? []), operation(method, path, item)]);
    }
  }
  const made = [...groups].flatMap(([tag, operations]) => [element("h3", {}, tag), ...operations]);
  find("endpoints-list").replaceChildren(...made);
}

function operation(method, path, item) {
  const { summary, requestBody, responses } = item[method];
  const success = responses["200"];
  const names = (item.parameters ?? []).map((parameter) => parameter.name);
  const facts = element(
    "dl",
    {},
    element("dt", {}, "Request"),
    element("dd", {}, ...content(requestBody)),
    element("dt", {}, "Response"),
    element("dd", {}, ...(success ? content(success) : ["501: not built yet"])),
  );
  const heading = [
    element("span", { class: `method ${method}` }, method.toUpperCase()),
    element("code", {}, path),
    element("span", { class: "text" }, ` ${summary}`),
  ];
  const trial = method === "get" && success ? [tryForm(item[method].operationId, path, names)] : [];
  return element("details", {}, element("summary", {}, ...heading), facts, ...trial);
}

/** What a body holds: media types with links to their schemas. */
function content(body) {
  if (!body?.content) return ["empty"];
  return Object.entries(body.content).flatMap(([media, { schema }], position) => {
    const name = schema.$ref.split("/").pop();
    return [position ? ", or " : "", `${media}: `, element("a", { href: `#schema-${name}`, click: () => openSchema(name) }, name)];
  });
}

function openSchema(name) {
  find(`schema-${name}`).open = true;
}

function tryForm(id, path, names) {
  const result = element("div", { role: "status" });
  const fields = names.map((name) => {
    const field = `${id}-${name}`;
    const digits = name === "version" ? { pattern: "[0-9]+", inputmode: "numeric" } : {};
    const input = element("input", { id: field, name, required: true, spellcheck: "false", ...digits });
    return element("p", {}, element("label", { for: field }, name), input);
  });
  const form = element("form", { class: "row" }, ...fields, element("button", { "aria-label": `Send GET ${path}` }, "Send"));
  onSubmit(form, () => {
    const filled = path.replace(/\{(\w+)\}/g, (_, name) => encodeURIComponent(form.elements[name].value));
    return show(result, () => ask("GET", filled));
  });
  return element("div", {}, form, result);
}

function showSchemas(description) {
  const made = Object.entries(description.components.schemas).map(([name, schema]) =>
    element(
      "details",
      { id: `schema-${name}` },
      element("summary", {}, name),
      element("pre", { tabindex: "0" }, JSON.stringify(schema, null, 2)),
    ),
  );
  find("schemas-list").replaceChildren(...made);
}

async function showDescription() {
  try {
    const answer = await ask("GET", "/openapi.json");
    if (!answer.ok) throw new Error(problem(answer));
    showEndpoints(answer.value);
    showSchemas(answer.value);
  } catch (error) {
    find("endpoints-list").replaceChildren(element("p", { class: "problem" }, `No description: ${error.message}`));
  }
}

const showAll = () => Promise.all([showServer(), showModels(), showDescription()]);

onSubmit(find("key-form"), showAll);
onSubmit(find("infer-form"), () => show(find("infer-result"), () => ask("POST", `${modelPath()}/infer`, find("infer-body").value)));
find("infer-example").addEventListener("click", fillExample);
showAll();
