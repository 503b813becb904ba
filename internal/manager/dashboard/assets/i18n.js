import codes from './strings/codes.js';
import other from './strings/en.js';
import zh from './strings/zh.js';

const en = { ...other, ...Object.fromEntries(Object.entries(codes).map(([code, { text }]) => ['code.' + code, text])) };
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

// memory renders MiB: exactly while that is short, else to a tenth.
export function memory(mib) {
  if (mib === 0) return '0';
  if (mib >= 1024 * 1024) return number().format(mib / 1024 / 1024) + ' TiB';
  if (mib >= 1024) return number().format(mib / 1024) + ' GiB';
  return number().format(mib) + ' MiB';
}

// percent of a whole, rounded so that only nothing is 0 and only all is 100.
export function percent(part, whole) {
  if (!whole || part <= 0) return 0;
  if (part >= whole) return 100;
  return Math.min(99, Math.max(1, Math.round(100 * part / whole)));
}

// ago says how long something has lasted.
export function ago(time) {
  const seconds = Math.max(0, Math.round((Date.now() - new Date(time)) / 1000));
  for (const [unit, length] of [['day', 86400], ['hour', 3600], ['minute', 60]]) {
    if (seconds >= length) return t('for.' + unit, { n: Math.floor(seconds / length) });
  }
  return t('for.second', { n: seconds });
}
