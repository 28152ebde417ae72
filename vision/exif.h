/* The one thing that a picture's EXIF tells of its pixels: which way is up.
 *
 *     int o = exif_orientation(jpeg, size);      1 to 8, EXIF's tag 0x0112; 1 (as it lies) when the file says nothing
 *                                                readable
 *
 * A JPEG's first APP1 segment that begins with "Exif\0\0" holds a TIFF file, little or big endian, whose first
 * directory has the tag (CIPA DC-008, 4.6.4 and 4.7.2; JPEG's markers: ITU-T T.81, B.1.1). Nothing outside [jpeg, jpeg
 * + size) is read, whatever lengths and offsets say.
 */
#ifndef QKV_VISION_EXIF_H
#define QKV_VISION_EXIF_H
#include <stddef.h>
#include <stdint.h>

int exif_orientation(const uint8_t *jpeg, size_t size);
#endif
