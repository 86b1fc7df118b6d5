/* image_rp2040.c: the first 256 bytes of flash, which the RP2040's boot ROM copies to the end of RAM, checks and runs
 * (RP2040 Datasheet, 2.8.1). They make the flash readable at its addresses, and start the program behind them.
 *
 * Plain serial reads (command 03h) at a quarter of the core clock, for any flash chip: 33 MHz at full speed, and these
 * chips take 50. The 16 KiB cache does the rest.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */

/* Registers of the SSI, 4.10.13. CTRLR0: 32 bits a frame, "EEPROM read". SPI_CTRLR0: command 03h of 8 bits, 24 bits of
 * address, all on one line. */
#define SSI "0x18000000"
#define CTRLR0 "0"
#define CTRLR1 "0x04"
#define SSIENR "0x08"
#define BAUDR "0x14"
#define SPI_CTRLR0 "0x180000f4"
#define VTOR "0xe000ed08"

/* Over the 252 bytes before it: polynomial 04C11DB7, from all ones, not reflected. tests/test_silicon.py has it anew
 * when the code changes. */
#define CRC "0x87c303c3"

__asm(".pushsection .boot2, \"ax\", %progbits\n"
      "    .syntax unified\n"
      "    .thumb\n"
      "rlx_boot2:\n"
      "    ldr r3, =" SSI "\n"
      "    movs r0, #0\n"
      "    str r0, [r3, #" SSIENR "]\n" /* off, or it takes no change */
      "    movs r1, #4\n"
      "    str r1, [r3, #" BAUDR "]\n"
      "    ldr r1, =0x001f0300\n"
      "    str r1, [r3, #" CTRLR0 "]\n"
      "    str r0, [r3, #" CTRLR1 "]\n" /* one frame a read */
      "    ldr r1, =0x03000218\n"
      "    ldr r2, =" SPI_CTRLR0 "\n"
      "    str r1, [r2]\n"
      "    movs r0, #1\n"
      "    str r0, [r3, #" SSIENR "]\n"
      "    ldr r0, =0x10000100\n" /* the vector table */
      "    ldr r1, =" VTOR "\n"
      "    str r0, [r1]\n"
      "    ldm r0, {r0, r1}\n"
      "    msr msp, r0\n"
      "    bx r1\n"
      "    .ltorg\n"
      "    .org rlx_boot2 + 252\n"
      "    .word " CRC "\n"
      ".popsection\n");
