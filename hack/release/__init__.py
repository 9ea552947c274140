"""What a release is made of beside images and chart: notes, the plugin, its krew manifest.

`notes` and `krew` are pure functions of the changelog and of the files built; `__main__` runs
them.
"""
