/* SPDX-License-Identifier: Apache-2.0 */
/* controller_python.h - which Python a rank starts the controller with. */
#ifndef LAGOM_CONTROLLER_PYTHON_H
#define LAGOM_CONTROLLER_PYTHON_H

#include <stdbool.h>
#include <stddef.h>

/* `wanted` is LAGOM_PYTHON. Where it is empty, the Python is taken from the first line of the installed `lagom` script: the
 * one of the installation that this library lies in, else the first one in PATH's absolute folders. Script and Python must
 * be guarded (ownership.h). `python` has PATH_MAX bytes. false with one clause in `reason`. */
bool lagom_controller_python(const char *wanted, char *python, char *reason, size_t reason_bytes);

#endif
