// Bundles page.jsx into ../static: what the server sends must be in the wheel, since nothing is fetched at run time.
import { build } from "esbuild";
import { readFileSync, readdirSync, writeFileSync } from "node:fs";
import { gzipSync } from "node:zlib";

const out = new URL("../static/", import.meta.url);
const { outputFiles, metafile } = await build({
  entryPoints: ["page.jsx"],
  outdir: "bundle",
  bundle: true,
  minify: true,
  metafile: true,
  write: false,
  target: "es2022",
  define: { "process.env.NODE_ENV": '"production"' },
  legalComments: "none",
});

for (const { path, contents } of outputFiles) {
  let text = Buffer.from(contents).toString();
  const kind = path.endsWith(".css") ? "css" : "js";
  // The fonts are three quarters of the style sheet; the page does without.
  if (kind === "css") text = text.replace(/@font-face\{[^}]*\}/g, "");
  const packed = gzipSync(text, { level: 9 });
  packed[9] = 255; // the operating system: the same bytes on every machine
  writeFileSync(new URL(`graphiql.${kind}.gz`, out), packed);
}

const packages = new Set();
for (const input of Object.keys(metafile.inputs)) {
  const found = input.match(/^node_modules\/((?:@[^/]+\/)?[^/]+)\//);
  if (found) packages.add(found[1]);
}
const notices = [...packages].sort().map((name) => {
  const { version, license } = JSON.parse(readFileSync(`node_modules/${name}/package.json`));
  const file = readdirSync(`node_modules/${name}`).find((each) => /^licen[cs]e/i.test(each));
  const text = file ? readFileSync(`node_modules/${name}/${file}`, "utf8").trim() : "(the package has no licence file)";
  return `${name} ${version} (${license})\n\n${text}\n`;
});
const head = "graphiql.js and graphiql.css are bundled from these packages, under these licences.\n";
writeFileSync(new URL("LICENSES.txt", out), [head, ...notices].join(`\n${"-".repeat(78)}\n\n`).replaceAll("\r\n", "\n"));
