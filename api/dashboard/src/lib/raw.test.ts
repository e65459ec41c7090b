import { describe, expect, it } from "vitest";

import { membersOf, objectText, parseAround, pretty, problemOf, rawMembers, tokens } from "./raw";

const HARD =
  '{"a":130775545883395173,"10":1,"2":[],"d":{},"e":0.1,"f":1e-7,"g":-0.0,"h":9007199254740993,"i":"é\\u0000\\u2028😀","__proto__":null,"a":"again"}';

describe("members of a text", () => {
  it("come as they stand", () => {
    const members = rawMembers(`{"x": ${HARD} , "y":[1,{"z":"}"}],"s":"a\\"b","n":null}`);
    expect([...members]).toEqual([
      ["x", HARD], ["y", '[1,{"z":"}"}]'], ["s", '"a\\"b"'], ["n", "null"],
    ]);
  });
  it("are none where there is no object", () => {
    expect(rawMembers("[1]").size).toBe(0);
    expect(rawMembers("").size).toBe(0);
    expect(membersOf('"text"')).toBeNull();
    expect(membersOf("{oops")).toBeNull();
  });
  it("stand apart from ordinary values", () => {
    const { value, raw } = parseAround<{ id: string }>(`{"id":"q:1","payload":${HARD}}`, ["payload"]);
    expect(value).toEqual({ id: "q:1" });
    expect(raw.get("payload")).toBe(HARD);
  });
});

describe("a text over several lines", () => {
  it("has the same tokens", () => {
    const lines = pretty(HARD);
    expect(lines.split("\n").length).toBeGreaterThan(10);
    expect(lines).toContain("130775545883395173");
    expect(lines).toContain("-0.0");
    const marks = (text: string) => tokens(text).filter((t) => t.kind !== "space").map((t) => t.text);
    expect(marks(lines)).toEqual(marks(HARD));
  });
  it("is left alone where it is no JSON", () => {
    expect(pretty("{oops")).toBe("{oops");
  });
});

describe("tokens", () => {
  it("make up the text, whatever it is", () => {
    for (const text of [HARD, "{oops", '"open', "NaN", "", "<script>alert(1)</script>", "[1, 2\n]"]) {
      expect(tokens(text).map((t) => t.text).join("")).toBe(text);
    }
  });
  it("tell keys from strings", () => {
    expect(tokens('{"k" : "v"}').filter((t) => t.kind === "key").map((t) => t.text)).toEqual(['"k"']);
  });
});

it("an object is made of texts", () => {
  expect(objectText([["a", "12345678901234567890"], ["b", undefined], ["c\"", "null"]])).toBe(
    '{"a":12345678901234567890,"c\\"":null}',
  );
});

it("what is no JSON is told", () => {
  expect(problemOf("{}")).toBeNull();
  expect(problemOf("")).toBe("it is empty");
  expect(problemOf("{a:1}")).not.toBeNull();
});
