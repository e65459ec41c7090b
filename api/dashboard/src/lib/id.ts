/** 128 random bits as text. `crypto.randomUUID` is missing on plain http. */
export function randomId(): string {
  const bits = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bits, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
