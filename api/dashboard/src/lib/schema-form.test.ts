import { expect, it } from "vitest";

import { compose, decompose, fieldsOf, wrongWith } from "./schema-form";

const fields = fieldsOf({
  type: "object",
  required: ["id", "to"],
  properties: {
    id: { type: "integer" },
    to: { type: "string" },
    size: { enum: ["s", "m"] },
    since: { anyOf: [{ type: "string" }, { type: "null" }] },
    address: { $ref: "#/$defs/Address" },
    urgent: { type: "boolean" },
  },
  $defs: { Address: { type: "object", properties: { city: { type: "string" } } } },
})!;

it("a schema becomes fields", () => {
  expect(fields.map((field) => [field.name, field.kind, field.required, field.nullable])).toEqual([
    ["id", "integer", true, false], ["to", "text", true, false], ["size", "choice", false, false],
    ["since", "text", false, true], ["address", "json", false, false], ["urgent", "boolean", false, false],
  ]);
  expect(fieldsOf({ type: "object", properties: {} })).toBeNull();
  expect(fieldsOf(undefined)).toBeNull();
});

it("texts become a payload and back, every digit kept", () => {
  const texts = { id: "98765432109876543210", to: 'a"b', size: '"m"', address: '{"n": 1.10}' };
  const payload = compose(fields, texts);
  expect(payload).toContain('"id": 98765432109876543210');
  expect(payload).toContain('"n": 1.10');
  expect(JSON.parse(payload)).toMatchObject({ to: 'a"b', size: "m" });
  expect(decompose(fields, payload)).toEqual(texts);
  expect(compose(fields, {})).toBe("{}");
});

it("what a form cannot show stays JSON", () => {
  expect(decompose(fields, '{"other":1}')).toBeNull();
  expect(decompose(fields, '{"size":"xxl"}')).toBeNull();
  expect(decompose(fields, '{"to":1}')).toBeNull();
  expect(decompose(fields, "[]")).toBeNull();
});

it("what does not fit is told", () => {
  const [id, to, , , address] = fields;
  expect(wrongWith(id!, "")).toBe("is needed");
  expect(wrongWith(id!, "1.5")).toBe("must be a whole number");
  expect(wrongWith(id!, "12345678901234567890")).toBeNull();
  expect(wrongWith(to!, undefined)).toBe("is needed");
  expect(wrongWith(to!, "")).toBeNull();
  expect(wrongWith(address!, "{")).toContain("must be JSON");
  expect(wrongWith(address!, "")).toBeNull();
});
