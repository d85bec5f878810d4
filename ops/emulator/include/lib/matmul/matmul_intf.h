// The high-level Matmul class, under the name that kernels include.
#pragma once

#include "../../emulator/matmul.h"
