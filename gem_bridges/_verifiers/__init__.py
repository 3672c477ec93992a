"""verifiers: ``verifiers:TASKSET`` as an environment. The package `gem_verifiers` is the other direction."""
