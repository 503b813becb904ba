import codes from './strings/codes.js';
import other from './strings/en.js';
import zh from './strings/zh.js';

const en = { ...Object.fromEntries(Object.entries(codes).map(([code, { text }]) => ['code.' + code, text])), ...other };
const languages = { en, zh };
let language = pick();

function pick() {
  const stored = read('language');
  if (stored in languages) return stored;
  return navigator.language?.toLowerCase().startsWith('zh') ? 'zh' : 'en';
}

// read and keep use the browser's storage where there is one.
export function read(key) {
  try { return localStorage.getItem('daybreak.' + key) ?? ''; } catch { return ''; }
}

export function keep(key, value) {
  try { localStorage.setItem('daybreak.' + key, value); } catch { /* it is forgotten with the page */ }
}

export const lang = () => language;

export function setLanguage(to) {
  language = to;
  keep('language', to);
}

const plurals = new Intl.PluralRules('en');

// t returns a text. {name} stands for a parameter; with n there may be a form for
// one thing.
export function t(key, parameters = {}) {
  const texts = languages[language];
  let text = texts[key] ?? en[key] ?? key;
  if ('n' in parameters && language === 'en' && plurals.select(Number(parameters.n)) === 'one') text = texts[key + '.one'] ?? text;
  return text.replace(/\{(\w+)\}/g, (_, name) => parameters[name] ?? '');
}

// has reports whether there is such a text.
export const has = (key) => key in languages[language];

const number = () => new Intl.NumberFormat(language === 'zh' ? 'zh-CN' : 'en', { maximumFractionDigits: 1 });

export const count = (n) => number().format(n);

// One rule for everything that is rounded, to a tenth: what is free or there at all
// is rounded down, what is used up. So nothing looks free that is not.
const down = (x) => Math.floor(10 * x + 1e-6) / 10;
const up = (x) => Math.max(0, Math.ceil(10 * x - 1e-6) / 10); // never -0

const units = [[1024 * 1024, 'TiB'], [1024, 'GiB'], [1, 'MiB']];

function amount(mib, round) {
  if (mib <= 0) return '0';
  let at = units.findIndex(([size]) => mib >= size);
  if (at > 0 && round(mib / units[at][0]) >= 1024) at--;
  return `${count(round(mib / units[at][0]))} ${units[at][1]}`;
}

// memory renders MiB that are used or asked for, free those that are free or there.
export const memory = (mib) => amount(mib, up);
export const free = (mib) => amount(mib, down);

// usedOf renders used MiB of all there are, never as more.
export function usedOf(mib, all) {
  const [size] = units.find(([unit]) => all >= unit) ?? [1];
  return up(mib / size) > down(all / size) ? free(all) : memory(mib);
}

// cardsUsed renders percent of cards that are used as a number of cards.
export const cardsUsed = (percents) => count(up(percents / 100));

// percent that is used of a whole: only nothing is 0 and only all is 100.
export function percent(part, whole) {
  if (!whole || part <= 0) return 0;
  if (part >= whole) return 100;
  return Math.min(99, Math.ceil(100 * part / whole));
}

// lasted returns how long something has lasted, in its largest unit.
function lasted(prefix, time) {
  const seconds = Math.max(0, Math.round((Date.now() - new Date(time)) / 1000));
  for (const [unit, length] of [['day', 86400], ['hour', 3600], ['minute', 60]]) {
    if (seconds >= length) return t(prefix + unit, { n: Math.floor(seconds / length) });
  }
  return t(prefix + 'second', { n: seconds });
}

// ago says how long something has lasted: "for 3 h", and age "3 h".
export const ago = (time) => lasted('for.', time);
export const age = (time) => lasted('age.', time);

const format = (options) => new Intl.DateTimeFormat(language === 'zh' ? 'zh-CN' : 'en-GB', { hourCycle: 'h23', ...options });

// clock is the time of a day, moment with its day.
export const clock = (time) => format({ timeStyle: 'medium' }).format(new Date(time));
export const moment = (time) => format({ dateStyle: 'medium', timeStyle: 'medium' }).format(new Date(time));
