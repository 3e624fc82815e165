"""How much of a change a subscriber sees.

* `View` combines content, images, projection and mask; equal views share encoded events.
* `Projection` selects fields, `Mask` replaces values.
* `entities` turns bodies into objects of the application's classes.
"""
