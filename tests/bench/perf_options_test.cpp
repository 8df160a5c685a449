// The command line of the *_perf programs: nccl-tests' names and defaults, and a clear refusal of
// everything that would measure something else than what was asked for.
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "bench/perf/options.h"

namespace tutti::perf {
namespace {

ParsedOptions parse(const std::string& line) {
  std::istringstream words(line);
  std::vector<std::string> arguments;
  for (std::string word; words >> word;) arguments.push_back(word);
  return parse_options("all_reduce_perf", arguments);
}

TEST(PerfOptions, DefaultsAreThoseOfNcclTests) {
  const ParsedOptions parsed = parse("");
  ASSERT_TRUE(parsed.run) << parsed.text;
  const PerfOptions& options = parsed.options;
  EXPECT_EQ(options.threads, 1);
  EXPECT_EQ(options.min_bytes, 33554432u);
  EXPECT_EQ(options.max_bytes, 33554432u);
  EXPECT_EQ(options.step_bytes, 1048576u);
  EXPECT_EQ(options.step_factor, 0u);
  EXPECT_EQ(options.iterations, 20);
  EXPECT_EQ(options.warmup, 1);
  EXPECT_EQ(options.aggregate, 1);
  EXPECT_EQ(options.cycles, 1);
  EXPECT_EQ(options.checks, 1);
  EXPECT_EQ(options.op, ReduceKind::sum);
  EXPECT_EQ(options.type, DataType::float32);
  EXPECT_EQ(options.root, 0);
  EXPECT_EQ(options.average, Average::mean);
  EXPECT_EQ(options.local_register, 2);
}

TEST(PerfOptions, CompressesWhereThatIsMeasured) {
  EXPECT_FALSE(parse("").options.compressed);
  EXPECT_TRUE(parse("--compress 8bit -d bfloat16").options.compressed);
  for (const char* line : {"--compress 4bit", "--compress", "--compress 8bit -g 1",
                           "--compress 8bit --bits", "--compress 8bit --nccl lib.so"}) {
    EXPECT_EQ(parse(line).exit_code, 2) << line;
  }
  const std::vector<std::string> words{"--compress", "8bit"};
  EXPECT_EQ(parse_options("all_gather_perf", words).exit_code, 2);
  EXPECT_TRUE(parse_options("reduce_scatter_perf", words).options.compressed);
}

TEST(PerfOptions, ShortNames) {
  const ParsedOptions parsed = parse(
      "-t 4 -g 1 -b 8 -e 64M -i 2K -f 4 -n 7 -w 0 -m 3 -N 2 -p 1 -c 0 -o mulsum -d half -r -1 -z 3 "
      "-T 30 -C 1 -S 1 -J out.json -a 3 -R 0 -M 1 -u 1 -I 1 -K 2 -y 0 -G 0 -x -1 -D 0 -V 16");
  ASSERT_TRUE(parsed.run) << parsed.text;
  const PerfOptions& options = parsed.options;
  EXPECT_EQ(options.threads, 4);
  EXPECT_EQ(options.min_bytes, 8u);
  EXPECT_EQ(options.max_bytes, 64u << 20);
  EXPECT_EQ(options.step_bytes, 2048u);
  EXPECT_EQ(options.step_factor, 4u);
  EXPECT_EQ(options.iterations, 7);
  EXPECT_EQ(options.warmup, 0);
  EXPECT_EQ(options.aggregate, 3);
  EXPECT_EQ(options.cycles, 2);
  EXPECT_TRUE(options.parallel_init);
  EXPECT_EQ(options.checks, 0);
  EXPECT_EQ(options.op, ReduceKind::pre_multiplied_sum);
  EXPECT_EQ(options.type, DataType::float16);
  EXPECT_EQ(options.root, -1);
  EXPECT_EQ(options.blocking, Blocking::barrier_after_iteration);
  EXPECT_EQ(options.timeout_seconds, 30);
  EXPECT_TRUE(options.cpu_time);
  EXPECT_TRUE(options.timestamps);
  EXPECT_EQ(options.output_file, "out.json");
  EXPECT_EQ(options.average, Average::maximum);
  EXPECT_EQ(options.local_register, 0);
  EXPECT_TRUE(options.memory_report);
  EXPECT_EQ(options.unalign, 1);
  EXPECT_TRUE(options.per_iteration);
  EXPECT_EQ(options.skip_iterations, 2);
}

TEST(PerfOptions, MemoryIsTheHostsUnlessGpusAreAskedFor) {
  EXPECT_EQ(parse("").options.gpus, 0);
  EXPECT_EQ(parse("").options.ranks_per_thread(), 1);
  const ParsedOptions parsed = parse("-g 8 -G 5 --nccl /a/libnccl.so.2");
  ASSERT_TRUE(parsed.run) << parsed.text;
  EXPECT_EQ(parsed.options.gpus, 8);
  EXPECT_EQ(parsed.options.ranks_per_thread(), 8);
  EXPECT_EQ(parsed.options.graph_launches, 5);
  EXPECT_EQ(parsed.options.nccl, "/a/libnccl.so.2");
  EXPECT_EQ(parsed.options.local_register, 0) << "as in nccl-tests";
  EXPECT_EQ(parse("-g 1 -R 2").options.local_register, 2);
}

TEST(PerfOptions, LongNames) {
  const ParsedOptions parsed = parse(
      "--nthreads 2 --ngpus 1 --minbytes=1K --maxbytes=1G --stepbytes 4096 --stepfactor 2 --iters "
      "5 "
      "--warmup_iters 2 --agg_iters 1 --run_cycles 1 --parallel_init 0 --check 2 --op max "
      "--datatype f8e4m3 --root 1 --blocking 1 --stream_null 0 --timeout 0 --cudagraph 0 "
      "--report_cputime 0 --report_timestamps 0 --output_file x.json --average 0 "
      "--local_register 1 --cta_policy -1 --device_implementation 0 --device_cta_count 16 "
      "--memory 0 --unalign 0 --per_iter_timing 0 --per_iter_skip 0");
  ASSERT_TRUE(parsed.run) << parsed.text;
  EXPECT_EQ(parsed.options.max_bytes, 1u << 30);
  EXPECT_EQ(parsed.options.type, DataType::float8_e4m3);
  EXPECT_EQ(parsed.options.checks, 2);
  EXPECT_FALSE(parsed.options.started);
  EXPECT_TRUE(parse("--started").options.started);
}

TEST(PerfOptions, AttachedValuesAndTheLastOneWins) {
  const ParsedOptions parsed = parse("-b8 -e16 -n3 -n4 -o all -d all");
  ASSERT_TRUE(parsed.run) << parsed.text;
  EXPECT_EQ(parsed.options.min_bytes, 8u);
  EXPECT_EQ(parsed.options.iterations, 4);
  EXPECT_FALSE(parsed.options.op);
  EXPECT_FALSE(parsed.options.type);
}

TEST(PerfOptions, SizesWithAPointAndAllRoots) {
  const ParsedOptions parsed = parse("-b 1.5K -e 1.5G -i 0.5M -r all");
  EXPECT_TRUE(parsed.run) << parsed.text;
  EXPECT_EQ(parsed.options.min_bytes, 1536u);
  EXPECT_EQ(parsed.options.max_bytes, std::size_t{3} << 29);
  EXPECT_EQ(parsed.options.step_bytes, 512u << 10);
  EXPECT_EQ(parsed.options.root, -1);
}

TEST(PerfOptions, HelpIsNoError) {
  for (const char* line : {"-h", "--help", "-b 8 -h"}) {
    const ParsedOptions parsed = parse(line);
    EXPECT_FALSE(parsed.run);
    EXPECT_EQ(parsed.exit_code, 0);
    EXPECT_NE(parsed.text.find("--stepfactor"), std::string::npos) << parsed.text;
  }
}

TEST(PerfOptions, RefusesAndSaysWhich) {
  const struct {
    const char* line;
    const char* mentions;
  } cases[] = {
      {"-b 64M", "--minbytes"},
      {"-b 16 -e 8", "--minbytes"},
      {"-e 1Q", "--maxbytes"},
      {"-b -1", "--minbytes"},
      {"-b 8x", "--minbytes"},
      {"-b", "--minbytes"},
      {"-e 99999999999999999999", "--maxbytes"},
      {"-e 9000000000G", "--maxbytes"},
      {"-e 8000000000G", "--maxbytes"},
      {"-b 8 -e 64 -f 1", "--stepfactor"},
      {"-b 8 -e 64 -f 0", "--stepfactor"},
      {"-b 8 -e 64 -f -2", "--stepfactor"},
      {"-b 8 -e 64 -f two", "--stepfactor"},
      {"-b 0 -e 64 -f 2", "--minbytes"},
      {"-b 8 -e 64 -i 0", "--stepbytes"},
      {"-n 0", "--iters"},
      {"-n -3", "--iters"},
      {"-n 1.5", "--iters"},
      {"-n 99999999999", "--iters"},
      {"-n 3x", "--iters"},
      {"-n", "--iters"},
      {"-w -1", "--warmup_iters"},
      {"-m 0", "--agg_iters"},
      {"-t 0", "--nthreads"},
      {"-t 100000", "--nthreads"},
      {"-c -1", "--check"},
      {"-o plus", "--op"},
      {"-d float31", "--datatype"},
      {"-r -2", "--root"},
      {"-r some", "--root"},
      {"-e 1.5", "--maxbytes"},
      {"-e 1.5X", "--maxbytes"},
      {"-z 4", "--blocking"},
      {"-a 4", "--average"},
      {"-R 3", "--local_register"},
      {"-u -1", "--unalign"},
      {"-p 2", "--parallel_init"},
      {"-S yes", "--report_timestamps"},
      {"-I 2", "--per_iter_timing"},
      {"-K 1", "--per_iter_timing"},
      {"-I 1 -n 5 -K 5", "--per_iter_skip"},
      {"-N 0 -J x.json", "--output_file"},
      {"-g 0", "--ngpus"},
      {"-G 1", "--ngpus"},
      {"-g 2 -G -1", "--cudagraph"},
      {"-g 2 -G 1 -z 1", "--blocking"},
      {"-g 2 -G 1 -I 1", "--per_iter_timing"},
      {"-y 1", "--stream_null"},
      {"-x 2", "--cta_policy"},
      {"-D 1", "--device_implementation"},
      {"-V 8", "--device_cta_count"},
      {"--started -g 1", "--ngpus"},
      {"--started -m 2", "--agg_iters"},
      {"--nccl", "--nccl"},
      {"--no_such_option 1", "no_such_option"},
      {"-q", "-q"},
      {"trailing", "trailing"},
      {"-n 5 6", "6"},
  };
  for (const auto& test : cases) {
    const ParsedOptions parsed = parse(test.line);
    EXPECT_FALSE(parsed.run) << test.line;
    EXPECT_EQ(parsed.exit_code, 2) << test.line;
    EXPECT_NE(parsed.text.find(test.mentions), std::string::npos)
        << test.line << " said: " << parsed.text;
    EXPECT_EQ(parsed.text.find("all_reduce_perf: "), 0u) << parsed.text;
  }
}

std::vector<std::size_t> sizes(const std::string& line) {
  const ParsedOptions parsed = parse(line);
  EXPECT_TRUE(parsed.run) << parsed.text;
  std::vector<std::size_t> result;
  std::optional<std::size_t> size = parsed.options.min_bytes;
  for (; size && result.size() < 100; size = next_size(parsed.options, *size)) {
    result.push_back(*size);
  }
  return result;
}

TEST(PerfOptions, Sizes) {
  using Sizes = std::vector<std::size_t>;
  EXPECT_EQ(sizes(""), Sizes{33554432});
  EXPECT_EQ(sizes("-b 8 -e 64 -f 2"), (Sizes{8, 16, 32, 64}));
  EXPECT_EQ(sizes("-b 8 -e 63 -f 2"), (Sizes{8, 16, 32}));
  EXPECT_EQ(sizes("-b 7 -e 1000 -f 10"), (Sizes{7, 70, 700}));
  EXPECT_EQ(sizes("-b 0 -e 10 -i 5"), (Sizes{0, 5, 10}));
  EXPECT_EQ(sizes("-b 1 -e 10 -i 5"), (Sizes{1, 6}));
  EXPECT_EQ(sizes("-b 5 -e 5 -i 0"), Sizes{5});
  EXPECT_EQ(sizes("-b 0 -e 0 -f 2"), Sizes{0});
  // No overflow at the top.
  EXPECT_EQ(sizes("-b 1G -e 2000000000G -f 2000000000"), (Sizes{1ul << 30, 2000000000ul << 30}));
}

}  // namespace
}  // namespace tutti::perf
