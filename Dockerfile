# docker build -t regard .
# docker run --rm -p 127.0.0.1:8080:8080 -v "$PWD/runs:/runs:ro" -e REGARD_KEY=… regard
FROM python:3.12-slim

WORKDIR /build
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY regard regard
# torch for CPUs has no CUDA libraries, which take several gigabytes
RUN pip install --no-cache-dir --extra-index-url https://download.pytorch.org/whl/cpu --constraint constraints.txt '.[images,audio]' \
    && rm -rf /build

RUN useradd --uid 10001 --create-home regard && mkdir /runs
USER regard
WORKDIR /home/regard

EXPOSE 8080
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8080/health', timeout=4)"]
# every address of the container: which of them can be reached from outside is for `docker run -p` to say
ENTRYPOINT ["regard", "serve", "--runs", "/runs", "--host", "0.0.0.0"]
