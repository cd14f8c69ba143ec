// Numbers, sizes, money and times as people read them. Pure, except for the clock in relative times.

import { el } from "../dom.js";

const whole = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const full = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const clock = new Intl.DateTimeFormat(undefined, {
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  hour12: false,
});

/** @param {number} n @returns {string} 12,345 */
export const number = (n) => whole.format(n ?? 0);

/** @param {number} n @returns {string} 12.3K */
export const compact = (n) => short.format(n ?? 0);

/** @param {number} part @param {number} all @returns {string} 12 % */
export function percent(part, all) {
  if (!all) return "0 %";
  const share = (100 * part) / all;
  return `${share > 0 && share < 10 ? share.toFixed(1) : Math.round(share)} %`;
}

/** @param {number} n of bytes @returns {string} */
export function bytes(n) {
  if (!(n >= 1024)) return `${n ?? 0} B`;
  const units = ["KiB", "MiB", "GiB", "TiB"];
  const step = Math.min(Math.floor(Math.log2(n) / 10), units.length);
  const value = n / 1024 ** step;
  return `${value < 10 ? value.toFixed(1) : Math.round(value)} ${units[step - 1]}`;
}

/** @param {number} dollars @returns {string} with as many digits as needed */
export function money(dollars) {
  const amount = dollars ?? 0;
  const digits = amount === 0 || amount >= 1 ? 2 : amount >= 0.01 ? 3 : 5;
  return `$${amount.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits })}`;
}

/** @param {number | null | undefined} ms @returns {string} 340 ms, 2.1 s, 3 min 20 s */
export function duration(ms) {
  if (ms === null || ms === undefined) return "…";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(ms < 10_000 ? 1 : 0)} s`;
  const minutes = Math.floor(ms / 60_000);
  const seconds = Math.floor((ms % 60_000) / 1000);
  if (minutes < 60) return seconds ? `${minutes} min ${seconds} s` : `${minutes} min`;
  if (minutes < 48 * 60) return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
  return `${Math.round(minutes / 1440)} days`;
}

/** Relative time, past or future. @param {number} ms since 1970 @returns {string} */
export function ago(ms, now = Date.now()) {
  const away = Math.abs(now - ms);
  if (away < 5_000) return "now";
  const units = [
    [86_400_000, "day"],
    [3_600_000, "h"],
    [60_000, "min"],
    [1000, "s"],
  ];
  const [size, name] = units.find(([unit]) => away >= unit) ?? units[3];
  const count = Math.floor(away / size);
  const words = `${count} ${name}${name === "day" && count > 1 ? "s" : ""}`;
  return ms > now ? `in ${words}` : `${words} ago`;
}

/** A relative time, with the exact time in the tooltip. @returns {HTMLElement} */
export function when(ms) {
  if (!ms) return el("span", { class: "quiet" }, "never");
  const date = new Date(ms);
  return el("time", { datetime: date.toISOString(), title: full.format(date) }, ago(ms));
}

/** @param {string | number} at @returns {string} 14:03:22 */
export const clockTime = (at) => clock.format(new Date(at));

/** A count with its noun. @returns {string} */
export const count = (n, one, many = `${one}s`) => `${number(n)} ${n === 1 ? one : many}`;
