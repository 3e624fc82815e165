"""Files that a server sends to browsers.

* ``penstock.js``, the JavaScript client.
* The start page, with links to the endpoints.
"""
