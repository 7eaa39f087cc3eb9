"""The commands, but for those about single files: a module for each that is imported when it is named."""
