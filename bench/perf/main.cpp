// main() of every *_perf program; the build says which collective it is.
#include "bench/perf/program.h"

int main(int argc, char** argv) {
  return tutti::perf::run_program(tutti::Collective::TUTTI_PERF_COLLECTIVE, argc, argv);
}
