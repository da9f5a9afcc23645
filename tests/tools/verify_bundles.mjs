// Verifies the Sigstore bundles in DIR/claims.jsonl with @sigstore/verify, each with the key of its role.
import { createPublicKey } from "node:crypto";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const [modules, folder] = process.argv.slice(2);
const require = createRequire(`${modules}/`);
const { bundleFromJSON } = require("@sigstore/bundle");
const { Verifier, toSignedEntity } = require("@sigstore/verify");

const keys = ["publisher.pem", "ledger.pem", "ledger.pem"];
const lines = readFileSync(`${folder}/claims.jsonl`, "utf8").trimEnd().split("\n");
if (lines.length !== keys.length) throw new Error(`${lines.length} claims`);
lines.forEach((line, number) => {
  const publicKey = createPublicKey(readFileSync(`${folder}/${keys[number]}`));
  const trust = {
    certificateAuthorities: [],
    ctlogs: [],
    publicKey: () => ({ publicKey, validFor: () => true }),
    timestampAuthorities: [],
    tlogs: [],
  };
  const none = { ctlogThreshold: 0, timestampThreshold: 0, tlogThreshold: 0 };
  new Verifier(trust, none).verify(toSignedEntity(bundleFromJSON(JSON.parse(line))));
});
console.log("verified");
