// A link to a part of the page survives logging in: browsers keep what comes
// after # over a redirect, but a form forgets it.
const form = document.getElementById('form');
form.addEventListener('submit', () => { form.action = 'login' + location.hash; });
