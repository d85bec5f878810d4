// What an Ascend C kernel includes. Written from the documented behaviour; nothing of the vendor's headers is in it.
#pragma once

#include "emulator/base.h"
#include "emulator/data_copy.h"
#include "emulator/lanes.h"
#include "emulator/pipe.h"
#include "emulator/sync.h"
#include "emulator/tensor.h"
#include "emulator/vector_binary.h"
