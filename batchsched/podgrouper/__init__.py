"""The pod grouper: pods that a Job, a JobSet, a training job, a Ray cluster and the like own are gangs.

`rules` and its neighbours are pure: an owner as JSON in, what its gang needs out. `members` says which pod belongs to
which gang, as pods and owners come and go; `projection` writes it all to the API, for people to see.
"""
