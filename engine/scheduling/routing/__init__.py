"""Which instance gets a request: prefill instances by a router, decode instances by the room they have. Pure."""
