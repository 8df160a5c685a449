// Included before all else where the library's sources are compiled for the explorer: its threads
// are fibers of one thread, which __builtin_thread_pointer() would not tell apart.
#pragma once

extern "C" void* tutti_model_thread();
#define __builtin_thread_pointer tutti_model_thread
