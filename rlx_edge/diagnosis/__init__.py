"""Why a device does not compute what the laptop computed."""
