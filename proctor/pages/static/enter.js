// Sends the token of the link, which is behind "#" and so in no request, and takes it out of the history.
"use strict";
{
  const token = location.hash.slice(1);
  if (token) {
    history.replaceState(null, "", location.pathname);
    document.getElementById("token").value = token;
    document.getElementById("enter").submit();
  }
}
