"""Authentication and authorisation: which clients may connect, and what they may do and see.

* `Access` is the object that every endpoint asks.
* `Principal` is an authenticated client; `Grant` has its rights on a log.
* Authenticators: `TokenFile`, `JwtVerifier`, `PeerCertificates`; `policy` reads a policy file.
"""
