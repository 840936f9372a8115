// SPDX-License-Identifier: Apache-2.0
// The one header that users include.
#pragma once

#include "frontend/compile.h"
#include "frontend/distributed.h"
#include "frontend/functional.h"
#include "frontend/nn/distributed_data_parallel.h"
#include "frontend/nn/layers.h"
#include "frontend/nn/module.h"
#include "frontend/ops.h"
#include "frontend/optim/optimizer.h"
#include "frontend/serialize.h"
#include "frontend/tensor.h"
