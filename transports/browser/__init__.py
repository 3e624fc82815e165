"""Files that a server sends to browsers: the client ``penstock.js``, and a page with links."""
