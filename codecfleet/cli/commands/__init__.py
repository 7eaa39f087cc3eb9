"""The commands, except those about single files: each module is imported when its command is named."""
