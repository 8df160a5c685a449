// Everything a program needs: communicators, and memory that the collectives move fastest.
#pragma once

#include "comm/communicator.h"
#include "comm/elastic.h"
#include "comm/window.h"
#include "core/memory.h"
