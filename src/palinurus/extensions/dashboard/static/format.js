// Numbers and times as text, in the reader's own locale.

const time = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const day = new Intl.DateTimeFormat(undefined, { weekday: "long" });
const date = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short", year: "numeric" });
const whole = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });
const number = new Intl.NumberFormat();

export const clockTime = (ms) => time.format(ms);
export const wholeTime = (ms) => whole.format(ms);
export const count = (value) => number.format(value);

/** "Today", "Yesterday", a weekday, or a date. */
export function dayName(ms, now = Date.now()) {
  const midnight = new Date(now).setHours(0, 0, 0, 0);
  const days = Math.round((midnight - new Date(ms).setHours(0, 0, 0, 0)) / 86_400_000);
  if (days <= 0) return "Today";
  if (days === 1) return "Yesterday";
  return days < 7 ? day.format(ms) : date.format(ms);
}

export function bytes(size) {
  if (size < 1_000) return `${size} B`;
  const [value, unit] = size < 1_000_000 ? [size / 1_000, "kB"] : [size / 1_000_000, "MB"];
  return `${value < 10 ? value.toFixed(1) : Math.round(value)} ${unit}`;
}

export function seconds(value) {
  if (value < 0.1) return `${Math.max(1, Math.round(value * 1000))} ms`;
  if (value < 10) return `${value.toFixed(1)} s`;
  if (value < 90) return `${Math.round(value)} s`;
  return `${Math.floor(value / 60)} min ${Math.round(value % 60)} s`;
}

export function tokens(value) {
  if (value < 1_000) return String(value);
  return value < 1_000_000 ? `${Math.round(value / 1_000)}k` : `${(value / 1_000_000).toFixed(1)}M`;
}

/** US dollars per million tokens, as short as possible. */
export function price(value) {
  return `$${value >= 10 ? Math.round(value) : Number(value.toPrecision(2))}`;
}

/** How much of a shortened text is not shown. */
export function shortened(text, most) {
  return text.length <= most ? text : `${text.slice(0, most - 1)}…`;
}
