"""What the log needs of the operating system.

* `filesystem` opens files and locks them; a simulated `FileSystem` can replace the real one.
* `modes` says who besides the owner may read files and directories.
* `reserve` keeps disk space for small writes that must succeed on a full disk.
* `descriptors` keeps file descriptors for what a log must open to go on.
* `notify` notifies readers in other processes of commits.
"""
