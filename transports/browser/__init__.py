"""What a server sends to browsers: the client ``penstock.js``, and a page with links to what else there is."""
