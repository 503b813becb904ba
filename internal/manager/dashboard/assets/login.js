// The language is that of the dashboard, or else the browser's. Without scripts both
// are shown.
const names = { en: '中文', zh: 'English' };
const button = document.getElementById('language');

function show(language) {
  document.documentElement.lang = language === 'zh' ? 'zh-CN' : 'en';
  document.documentElement.dataset.language = language;
  button.textContent = names[language];
}

function stored() {
  try { return localStorage.getItem('daybreak.language'); } catch { return null; }
}

button.addEventListener('click', () => {
  const other = document.documentElement.dataset.language === 'zh' ? 'en' : 'zh';
  show(other);
  try { localStorage.setItem('daybreak.language', other); } catch { /* it is forgotten with the page */ }
});
button.hidden = false;
show(stored() in names ? stored() : navigator.language?.toLowerCase().startsWith('zh') ? 'zh' : 'en');

// A link to a part of the page survives logging in: browsers keep what comes
// after # over a redirect, but a form forgets it.
const form = document.getElementById('form');
form?.addEventListener('submit', () => { form.action = 'login' + location.hash; });
