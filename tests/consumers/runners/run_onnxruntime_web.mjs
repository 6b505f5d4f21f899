// onnxruntime's WebAssembly build. The manifest names raw float32 files:
// {"model": path, "runs": [{"name", "dims", "file", "outputs": {name: file}}]}
import { readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [packages, manifest] = process.argv.slice(2);
const found = createRequire(`${packages}/package.json`).resolve("onnxruntime-web");
const ort = await import(pathToFileURL(found).href);
const api = ort.InferenceSession ? ort : ort.default;
api.env.wasm.numThreads = 1;
const work = JSON.parse(readFileSync(manifest, "utf8"));
const session = await api.InferenceSession.create(readFileSync(work.model), {
  executionProviders: ["wasm"],
  graphOptimizationLevel: "all",
});
for (const run of work.runs) {
  const bytes = readFileSync(run.file);
  const data = new Float32Array(bytes.buffer, bytes.byteOffset, bytes.length / 4);
  const made = await session.run({ [run.name]: new api.Tensor("float32", data, run.dims) });
  for (const [name, file] of Object.entries(run.outputs)) {
    const value = made[name];
    writeFileSync(file, new Uint8Array(value.data.buffer, value.data.byteOffset, value.data.byteLength));
    writeFileSync(`${file}.json`, JSON.stringify(value.dims));
  }
}
