# All that this module has is for compiled code.
