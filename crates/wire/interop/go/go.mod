module wire.example/frames

go 1.22

require github.com/klauspost/compress v1.18.0
