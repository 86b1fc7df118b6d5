"""Boards, firmware builds, emulators and the serial link to a device."""
