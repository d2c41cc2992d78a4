// Node's gRPC client against a server: prints what each check saw as one line of JSON.
// Usage: NODE_PATH=.../node_modules node interop.cjs HOST:PORT FOLDER_OF_PROTOS
"use strict";
const grpc = require("@grpc/grpc-js");
const loader = require("@grpc/proto-loader");

const [address, protos] = process.argv.slice(2);
const definition = loader.loadSync(["inference.proto", "health.proto"], {
  includeDirs: [protos], keepCase: true, longs: Number, enums: String, defaults: true, oneofs: true,
});
const api = grpc.loadPackageDefinition(definition);
const limits = { "grpc.max_receive_message_length": -1, "grpc.max_send_message_length": -1 };
const client = new api.inference.GRPCInferenceService(address, grpc.credentials.createInsecure(), limits);
const health = new api.grpc.health.v1.Health(address, grpc.credentials.createInsecure());

const ask = (name, request, metadata = new grpc.Metadata(), options = {}) =>
  new Promise((done) => {
    client[name](request, metadata, options, (error, answer) =>
      done(error ? { code: error.code, details: error.details } : answer));
  });

const tensor = (name, datatype, shape) => ({ name, datatype, shape });
const floats = (...values) => Buffer.from(new Float32Array(values).buffer);
const ints = (...values) => Buffer.from(new Int32Array(values).buffer);
const echo = (raw, id = "") => ({
  model_name: "echo", id, inputs: [tensor("X", "FP32", [1, raw.length / 4])], raw_input_contents: [raw],
});
const slow = (model, ms, id = "") => ({
  model_name: model, id, inputs: [tensor("X", "FP32", [1, 1]), tensor("MS", "INT32", [1, 1])],
  raw_input_contents: [floats(1), ints(ms)],
});
const rep = (count, id) => ({
  model_name: "rep", id, inputs: [tensor("N", "INT32", [1]), tensor("SIZE", "INT32", [1])],
  raw_input_contents: [ints(count), ints(1)],
  parameters: { triton_enable_empty_final_response: { bool_param: true } },
});

// Ask on one stream; resolve with its answers and how it ended.
function streamed(requests, onAnswer = () => {}) {
  return new Promise((done) => {
    const call = client.ModelStreamInfer();
    const answers = [];
    call.on("data", (answer) => {
      const response = answer.infer_response;
      const raw = response && response.raw_output_contents[0];
      answers.push([response ? response.id : "", raw ? raw.readInt32LE(0) : null, answer.error_message]);
      onAnswer(call, answers);
    });
    call.on("error", () => {}); // its code comes with the status, too
    call.on("status", (status) => done({ answers, code: status.code }));
    for (const request of requests) call.write(request);
    if (onAnswer.length === 0) call.end();
  });
}

async function large() {
  const raw = Buffer.alloc(12 << 20);
  for (let at = 0; at < raw.length; at += 4) raw.writeFloatLE(at % 1000, at);
  const answer = await ask("ModelInfer", echo(raw, "big"));
  return { id: answer.id, equal: Buffer.compare(answer.raw_output_contents[0], raw) === 0 };
}

async function deadline() {
  const begun = Date.now();
  const answer = await ask("ModelInfer", slow("poll", 10000), undefined, { deadline: begun + 300 });
  return { code: answer.code, after_ms: Date.now() - begun };
}

function cancelled() {
  return new Promise((done) => {
    const call = client.ModelInfer(slow("poll", 10000), (error) => done({ code: error.code }));
    setTimeout(() => call.cancel(), 200);
  });
}

async function main() {
  const metadata = new grpc.Metadata();
  metadata.set("my-header", "v");
  metadata.set("x-bin", Buffer.from([0, 255, 10]));
  const seen = {
    live: await ask("ServerLive", {}),
    health: await new Promise((done) => health.Check({}, (error, answer) => done(error ? error.code : answer))),
    config: (await ask("ModelConfig", { name: "echo" })).config.max_batch_size,
    unary: floats(1, 2).equals((await ask("ModelInfer", echo(floats(1, 2)), metadata)).raw_output_contents[0]),
    large: await large(),
    many: (await Promise.all([...Array(100).keys()].map((n) => ask("ModelInfer", echo(floats(n), `${n}`))))).map((a) => a.id),
    unknown: await ask("ModelInfer", { model_name: "nöbody" }),
    wrong: await ask("ModelInfer", { model_name: "echo", inputs: [tensor("X", "INT8", [1, 1])], raw_input_contents: [Buffer.alloc(1)] }),
    deadline: await deadline(),
    cancelled: await cancelled(),
    stream: await streamed([rep(5, "r"), slow("slow", 30, "a"), { model_name: "nobody", id: "e" }, slow("slow", 0, "b")]),
    cancelled_stream: await streamed([rep(1000000, "r")], (call, answers) => { if (answers.length === 3) call.cancel(); }),
    after: await ask("ServerReady", {}),
  };
  process.stdout.write(JSON.stringify(seen) + "\n");
  client.close();
  health.close();
}

main().catch((error) => { console.error(error); process.exit(1); });
